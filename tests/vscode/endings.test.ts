/** The ends of programs, as VS Code shows them. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

test("a program that runs to its end leaves its output in the Debug Console", async ({ vscode }) => {
    await vscode.openFile("plain.py");
    await vscode.startDebugging();
    await vscode.debug.waitForEnd();
    await expect(vscode.debug.consoleRows().first(), "the output of the program").toBeVisible();
    await expect(vscode.page.locator(".notification-toast")).toHaveCount(0);
});

test("an uncaught exception stops where it is raised, and ends with only its traceback", async ({ vscode, workspace, picture }) => {
    const file = "endings/raises.py";
    await vscode.openFile(file);
    await vscode.startDebugging();
    await vscode.debug.waitForStop(at("fail", "raises.py", await workspace.line(file, "raise")));
    await expect(vscode.page.locator(".exception-widget")).toContainText("the program's own error: 2.0");
    await picture("exception");
    await vscode.debug.press("F5");
    await vscode.debug.waitForEnd();
    const output = vscode.debug.consoleRows();
    await expect(output.filter({ hasText: "RuntimeError: the program's own error: 2.0" }).first()).toBeVisible();
    await expect(output.filter({ hasText: "dynamo_dap" })).toHaveCount(0);
});

test("a crash of the process is named", async ({ vscode, picture }) => {
    await vscode.openFile("endings/segfault.py");
    await vscode.startDebugging();
    await vscode.debug.waitForEnd();
    await expect(vscode.debug.consoleRows().filter({ hasText: "before the end" }).first()).toBeVisible();
    await expect(vscode.debug.consoleRows().filter({ hasText: "SIGSEGV" }).first()).toBeVisible();
    await picture("crash");
});

test("a syntax error is reported with its line", async ({ vscode }) => {
    await vscode.openFile("broken/does_not_parse.py");
    await vscode.startDebugging();
    await vscode.debug.waitForEnd();
    await expect(vscode.debug.consoleRows().filter({ hasText: "SyntaxError" }).first()).toBeVisible();
});

test("the program runs in a terminal when asked to", async ({ vscode, workspace }) => {
    await workspace.write(".vscode/launch.json", launchJson({ console: "integratedTerminal" }));
    await vscode.openFile("plain.py");
    await vscode.startDebugging();
    await expect(vscode.page.locator(".terminal-wrapper").first(), "a terminal opens").toBeVisible();
    await vscode.debug.waitForEnd();
});

test("a running program is paused, continues, and ends by the stop button", { tag: "@core" }, async ({ vscode, workspace }) => {
    const { debug, page } = vscode;
    const file = "endings/runs_on.py";
    await vscode.openFile(file);
    await vscode.startDebugging();
    await expect(debug.consoleRows().first(), "the program's first output").toBeVisible({ timeout: 60_000 });
    // Not the key: it moves the focus until VS Code knows that the program runs.
    const pause = page.locator(".part.sidebar .codicon-debug-pause:not(.disabled)");
    await expect(async () => {
        // VS Code ignores the button until it has requested the threads, and does not show when.
        await pause.click({ timeout: 2000 });
        await expect(page.locator(".part.sidebar .codicon-debug-continue")).toBeVisible({ timeout: 5000 });
    }, "the program is paused").toPass();
    const stack = await debug.waitForStop(/^<module> runs_on.py /);
    const [loop, sleep] = [(await workspace.line(file, "sleep")) - 1, await workspace.line(file, "sleep")];
    expect(stack[0]).toMatch(new RegExp(`runs_on.py (${loop}|${sleep}):`));
    await debug.press("F5");
    await expect.poll(() => debug.texts("call-stack"), "it goes on").not.toContainEqual(expect.stringMatching("runs_on.py"));
    await debug.press("Shift+F5");
    await vscode.debug.waitForEnd();
});
