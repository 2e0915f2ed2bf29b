/** Attaches to a program that listens, and disconnects. */

import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";

import { at } from "./harness/debug-panes.js";
import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";
import type { Workspace } from "./harness/workspace.js";

const FILE = "listening.py";
const START_MILLISECONDS = 60_000;

test("attach stops in a running program; disconnect lets it run on", async ({ vscode, workspace, server }) => {
    const { debug } = vscode;
    const [program, port] = await listening(workspace, server.environment);
    try {
        const attach = { name: "x", type: "dynamo", request: "attach", connect: { host: "127.0.0.1", port } };
        await workspace.write(".vscode/launch.json", JSON.stringify({ version: "0.2.0", configurations: [attach] }));
        const line = await workspace.line(FILE, "compute");
        await vscode.openFile(FILE);
        await vscode.editor.setBreakpoint(line);
        const seen: number[] = [];
        for (let time = 0; time < 2; time += 1) {
            await vscode.startDebugging();
            await debug.waitForStop(at("compute", FILE, line));
            const step = await debug.reveal("variables", "step =");
            seen.push(Number(/step =\s*(\d+)/.exec(await step.innerText())?.[1]));
            await debug.press("Shift+F5");
            await debug.waitForEnd();
            await expect.poll(() => debug.texts("call-stack")).toEqual([]);
            expect(program.exitCode, "the program runs on").toBeNull();
        }
        expect(seen[1], "it ran on between the two").toBeGreaterThan(seen[0] ?? NaN);
    } finally {
        program.kill("SIGKILL");
    }
});

/** Starts the program, and returns it with its port once it listens. */
async function listening(workspace: Workspace, environment: NodeJS.ProcessEnv): Promise<[ChildProcess, number]> {
    // The program writes its access token to the folder in which the same user's debugger looks for it.
    const env = { ...process.env, ...environment };
    const program = spawn(python(), [FILE], { cwd: workspace.folder, env, stdio: ["ignore", "pipe", "inherit"] });
    const timer = setTimeout(() => program.kill("SIGKILL"), START_MILLISECONDS);
    for await (const line of createInterface({ input: program.stdout })) {
        const port = /^listening on .*:(\d+)$/.exec(line)?.[1];
        if (port !== undefined) {
            clearTimeout(timer);
            program.stdout.resume();
            return [program, Number(port)];
        }
    }
    throw new Error("the program ended before it listened");
}
