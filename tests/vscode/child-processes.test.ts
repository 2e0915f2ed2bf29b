/** Each child process of a program has its own session, below the session of its parent. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

const FILE = "eager/child_processes.py";
const NAME = "child_processes.py";

test("breakpoints are hit in a child process, and its compiles are shown", async ({ vscode, workspace, picture }) => {
    const { compiles, debug } = vscode;
    const [eager, traced] = [await workspace.line(FILE, "eager"), await workspace.line(FILE, "traced")];
    await workspace.write(".vscode/launch.json", launchJson({ args: ["spawn"] }));
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(eager);
    await vscode.editor.setBreakpoint(traced);
    await vscode.startDebugging();
    const stack = expect.poll(() => debug.texts("call-stack"), { message: "the child stops", timeout: 60_000 });
    await stack.toContainEqual(expect.stringMatching(at("work", NAME, eager)));
    await expect(debug.row("variables", "n =")).toContainText("1");
    await debug.press("F5");
    // The pane is too low for all threads of both processes.
    await debug.reveal("call-stack", "Tracing compute [0/0]");
    await expect(await debug.reveal("call-stack", "compute", NAME)).toContainText(`${traced}:`);
    await expect(debug.row("variables", "x =")).toContainText("Tensor f32[2]");
    await compiles.show("Compiles");
    await expect(compiles.row("Compiles", "compute")).toBeVisible();
    await picture("child-process");
    await debug.press("F5");
    await debug.waitForEnd();
    await expect(debug.consoleRows().filter({ hasText: "spawn [8.0]" }).first()).toBeVisible();
});
