/** Each rank of a distributed job is a session with its name. If configured, all stop and continue together. */

import { spawn, type ChildProcess } from "node:child_process";

import { at } from "./harness/debug-panes.js";
import { LATE } from "./harness/late.js";
import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";
import { jobJson } from "./harness/workspace.js";

const FILE = "spins.py";
const HELD = [expect.stringMatching(/^rank 0 \(local 0\) PAUSED/), expect.stringMatching(/^rank 1 \(local 1\) PAUSED/)];
const BREAKPOINT_LINE = 6;
const PROGRAM = `import os
import time


while not os.path.exists("go"):
    time.sleep(0.05)
print("over", os.environ["RANK"])
`;

test("ranks have their names in the call stack, and stop and continue together", async ({
    vscode,
    workspace,
    picture,
}) => {
    const { debug } = vscode;
    await workspace.write(FILE, PROGRAM);
    await workspace.write(".vscode/launch.json", jobJson({ stopRanks: "together" }, FILE));
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(BREAKPOINT_LINE);
    await vscode.startDebugging();
    // One rank is at the breakpoint, and the other one where it was paused.
    const held = async (): Promise<string[]> =>
        (await debug.texts("call-stack")).filter((row) => row.startsWith("rank ") && row.includes("PAUSED")).sort();
    await expect.poll(held, { message: "both ranks are held", timeout: 90_000 }).toEqual(HELD);
    await picture("ranks");
    // The job ends only if both continue, although only one gets the command.
    await workspace.write("go", "");
    await debug.press("F5");
    await debug.waitForEnd();
});

test("ranks connect back to a session that waits for them", async ({ vscode, workspace, server }) => {
    const { debug } = vscode;
    const job = { name: "rank 0", type: "dynamo", request: "attach", listen: { port: 0 }, stopRanks: "together" };
    await workspace.write(FILE, PROGRAM);
    await workspace.write(".vscode/launch.json", JSON.stringify({ version: "0.2.0", configurations: [job] }));
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(BREAKPOINT_LINE);
    await vscode.startDebugging();
    await debug.console();
    const told = /DYNAMO_DAP_CONNECT='(.+?)'/;
    const row = debug.consoleRows().filter({ hasText: told });
    await expect(row, "the console says what to export").toBeVisible(LATE);
    const address = told.exec(await row.innerText())?.[1] ?? "";
    const ranks: ChildProcess[] = [];
    try {
        const begin = (rank: string): void => {
            const job = { RANK: rank, LOCAL_RANK: "0", WORLD_SIZE: "2", DYNAMO_DAP_CONNECT: address };
            const env = { ...process.env, ...server.environment, ...job };
            const command = ["-m", "dynamo_dap", "connect", FILE];
            ranks.push(spawn(python(), command, { cwd: workspace.folder, env, stdio: "inherit" }));
        };
        begin("0");
        await debug.waitForStop(at("<module>", FILE, BREAKPOINT_LINE));
        begin("1");
        const held = async (): Promise<string[]> =>
            (await debug.texts("call-stack")).filter((row) => row.startsWith("rank ") && row.includes("PAUSED")).sort();
        const both = [expect.stringMatching(/^rank 0 PAUSED/), expect.stringMatching(/^rank 1 \(local 0\) PAUSED/)];
        await expect.poll(held, { message: "both ranks are held", timeout: 60_000 }).toEqual(both);
        await workspace.write("go", "");
        await debug.press("F5");
        await debug.waitForEnd();
        const codes = (): (number | null)[] => ranks.map((rank) => rank.exitCode);
        await expect.poll(codes, { message: "both have ended", ...LATE }).toEqual([0, 0]);
    } finally {
        for (const rank of ranks) {
            rank.kill("SIGKILL");
        }
    }
});

test("a compile shows how FSDP shards its module", async ({ vscode, workspace, picture }) => {
    const { compiles, debug } = vscode;
    const file = "fsdp_blocks.py";
    const line = await workspace.line(file, "step");
    await workspace.write(".vscode/launch.json", jobJson({ ranks: [0] }, file, "blocks"));
    await vscode.openFile(file);
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await expect(debug.row("call-stack", file), "rank 0 stops").toBeVisible({ timeout: 120_000 });
    await compiles.show("Compiles");
    await compiles.open("Compiles", "0/0");
    const row = await compiles.reveal("Compiles", "FSDP: first");
    await expect(row).toContainText("4 parameters (1120 bytes) of 2 ranks");
    await picture("ranks-sharding");
    await debug.press("Shift+F5");
    await debug.waitForEnd();
});
