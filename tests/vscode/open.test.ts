/** `make vscode`: the printed address opens VS Code, and Ctrl+C ends all processes. An installed `code` is preferred. */

import { spawn, type ChildProcess } from "node:child_process";
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { packagedExtension } from "./harness/extension.js";
import { LATE } from "./harness/late.js";
import { cache, output } from "./harness/places.js";
import { expect, test } from "./harness/test.js";
import { Workbench } from "./harness/workbench.js";

const START_MILLISECONDS = 2 * 60_000;

test("the printed address opens VS Code, and Ctrl+C ends it", async ({ page }) => {
    const opener = open({ VSCODE: "code-server" });
    try {
        const address = await printed(opener, /^VS Code runs at (\S+)$/);
        await page.goto(address, { waitUntil: "domcontentloaded" });
        const explorer = page.locator(".explorer-folders-view .monaco-list-row");
        await expect(explorer.filter({ hasText: "basic.py" })).toBeVisible({ timeout: START_MILLISECONDS });
        await runWithHints(new Workbench(page));
        // Like a terminal, send the signal to all processes in the foreground, such as make and npm.
        process.kill(-(opener.pid ?? NaN), "SIGINT");
        await expect.poll(() => opener.exitCode ?? opener.signalCode, LATE).not.toBeNull();
        await expect(fetch(address), "the server is gone").rejects.toThrow();
    } finally {
        opener.kill("SIGKILL");
    }
});

test("an installed code gets the extension and opens the fixtures", async ({}, info) => {
    // A script instead of `code`, which notes its arguments.
    const folder = info.outputPath("bin");
    const notes = join(folder, "notes");
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "code"), `#!/bin/sh\necho "$@" >> "${notes}"\n`);
    await chmod(join(folder, "code"), 0o755);
    const opener = open({ VSCODE: "", PATH: `${folder}:${process.env.PATH ?? ""}` });
    await printed(opener, /^VS Code is open on (\S+): press F5\.$/);
    const [installs, opens] = (await readFile(notes, "utf8")).trimEnd().split("\n");
    expect(installs).toMatch(/--install-extension \S+dynamo-dap\.vsix$/);
    expect(opens).toMatch(new RegExp(`${join(cache, "open-workspace", "fixtures")} \\S+/basic\\.py$`));
    const settings = join(cache, "open-workspace/fixtures/.vscode/settings.json");
    expect(JSON.parse(await readFile(settings, "utf8"))).toHaveProperty(["dynamo.python"]);
});

/** Runs the file in the editor with F5, after which its lines show shapes. */
async function runWithHints(vscode: Workbench): Promise<void> {
    await vscode.openFile("graph_break.py");
    await vscode.startDebugging();
    await vscode.debug.waitForEnd();
    await expect.poll(() => vscode.editor.text(), { timeout: 60_000 }).toContain("scaled: f32[2, 3] = total * 2");
    await vscode.page.screenshot({ path: join(output, "make-vscode.png") });
}

function open(environment: NodeJS.ProcessEnv): ChildProcess {
    // Use this run's package: another worker may be installing it.
    const env = { ...process.env, DYNAMO_DAP_VSIX: packagedExtension, ...environment };
    const stdio = ["ignore", "pipe", "inherit"] as const;
    return spawn("npm", ["run", "--silent", "open"], { env, cwd: import.meta.dirname, stdio: [...stdio], detached: true });
}

/** Waits until the program prints a line that matches, and returns the text of the pattern's group. */
async function printed(program: ChildProcess, pattern: RegExp): Promise<string> {
    const timer = setTimeout(() => program.kill("SIGKILL"), START_MILLISECONDS);
    if (program.stdout !== null) {
        for await (const line of createInterface({ input: program.stdout })) {
            const found = pattern.exec(line);
            if (found !== null) {
                clearTimeout(timer);
                program.stdout.resume();
                return found[1] ?? "";
            }
        }
    }
    throw new Error(`the program ended before it printed ${pattern.source}`);
}
