/** Stepping the bytecode that Dynamo generated, in VS Code's own surfaces. */

import { at, escaped } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";
import type { Workbench } from "./harness/workbench.js";

const FILE = "side_effects.py";
const GENERATED = /^record \(generated #\d+\) /;

const launch = (changes: object): string =>
    JSON.stringify({
        version: "0.2.0",
        configurations: [{ name: "x", type: "dynamo", request: "launch", program: "${file}", ...changes }],
    });

test("generated code is stepped in its listing, with the value stack", async ({ vscode, workspace, picture }) => {
    const { debug, page } = vscode;
    await workspace.write(".vscode/launch.json", launch({ mode: "run-time", stopOnGeneratedCode: true }));
    await vscode.openFile(FILE);
    await vscode.startDebugging();
    await debug.waitForStop(GENERATED);
    await expect(page.locator(".tab.active", { hasText: /^record \(generated #\d+\)/ })).toBeVisible();
    await expect.poll(() => vscode.editor.text()).toMatch(/LOAD_FAST +x .*load compiled graph/);
    await expect(debug.row("variables", "x =")).toContainText("Tensor f32[3]");

    // A step is a statement: one group of instructions that serve one purpose.
    await stepUntil("prepare: d.update", vscode);
    const store = at("record", FILE, await workspace.line(FILE, "store_dict"));
    await expect.poll(() => debug.texts("call-stack")).toContainEqual(expect.stringMatching(store));
    await debug.expand("graph_out_0 =");
    await picture("run-time");

    await vscode.command("Open Disassembly View");
    for (const instruction of ["LOAD_FAST d", "LOAD_METHOD update", "LOAD_CONST 'result'"]) {
        const row = debug.instructionRow().filter({ hasText: instruction });
        await expect(row, `stopped at ${instruction}`).toBeVisible();
        await page.keyboard.press("F10");
    }
    await expect(debug.instructionRow()).toContainText("LOAD_FAST graph_out_0");
    await debug.expand("Value Stack");
    await expect(await debug.reveal("(top)")).toContainText("'result'");
    await picture("disassembly");
});

test("a breakpoint of mode run-time stops in generated code and not while tracing", async ({ vscode, workspace }) => {
    const { debug, page } = vscode;
    const line = await workspace.line(FILE, "append");
    await workspace.write(".vscode/launch.json", launch({}));
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("record", FILE, line));
    await vscode.editor.editBreakpoint(line, "Mode", "Run-time");
    await page.keyboard.press("Control+Shift+F5");
    await debug.waitForStop(GENERATED);
    await expect.poll(() => debug.texts("call-stack")).toContainEqual(expect.stringMatching(at("record", FILE, line)));
});

/** Steps over until the line where the program is stopped contains a text. */
async function stepUntil(wanted: string, { editor, page }: Workbench): Promise<void> {
    for (let count = 0; count < 40; count += 1) {
        const line = await editor.currentLine();
        if (line.includes(wanted)) {
            return;
        }
        await page.keyboard.press("F10");
        await expect.poll(() => editor.currentLine(), { message: "the step ends" }).not.toMatch(new RegExp(`^$|^${escaped(line)}$`));
    }
    throw new Error(`no step reached ${wanted}`);
}
