/** The record in the editor: what the language server shows after a run of the program. */

import { LATE } from "./harness/late.js";
import { expect, test } from "./harness/test.js";

const FILE = "graph_break.py";

test("a run leaves diagnostics, inlay hints and a lens in the editor", { tag: "@core" }, async ({ vscode, workspace, picture }) => {
    const { editor, page } = vscode;
    await workspace.write(".vscode/settings.json", JSON.stringify({ "dynamo.inlayHints": true }));
    await vscode.openFile(FILE);
    await vscode.startDebugging();
    await vscode.debug.waitForEnd();

    const lens = page.locator(".codelens-decoration a", { hasText: /^2 graphs, 1 break, \d+\.\d s$/ });
    await expect(lens.first()).toBeVisible(LATE);
    const assignment = await workspace.line(FILE, "before_break");
    await editor.goToLine(assignment);
    await expect.poll(() => editor.lineText(assignment), LATE).toContain("scaled: f32[2, 3] = total * 2");

    await vscode.command("Problems: Focus on Problems View");
    const problem = page.locator(".markers-panel .monaco-list-row", { hasText: "Graph break: Call to" });
    await expect(problem).toContainText("GB0025");
    await expect(page.locator(".squiggly-warning").first()).toBeVisible();
    await picture("language-server");

    await lens.first().click();
    await expect.poll(() => editor.text(), LATE).toContain(`Graph break at ${FILE}:`);
    expect(await editor.text(), "no escapes of a terminal").not.toContain("\u001b");

    // While stopped, a shape is shown only in the value at the end of its line.
    await vscode.openFile(FILE);
    await editor.setBreakpoint(assignment + 1);
    await vscode.startDebugging();
    await vscode.debug.waitForStop(/^train_step/);
    await expect.poll(() => editor.lineText(assignment), LATE).toMatch(/scaled = total \* 2 *scaled: f32\[2, 3\]/);
    await vscode.debug.press("F5");
    await vscode.debug.waitForEnd();
    await expect.poll(() => editor.lineText(assignment), LATE).toContain("scaled: f32[2, 3] = total * 2");
});

test("a change of the interpreter causes no error", async ({ vscode, workspace }) => {
    const { page } = vscode;
    const complaints = page.locator(".notification-toast");
    await vscode.openFile(FILE);
    await vscode.startDebugging();
    await vscode.debug.waitForEnd();
    const lens = page.locator(".codelens-decoration a", { hasText: /^2 graphs, 1 break/ }).first();
    await expect(lens).toBeVisible(LATE);

    await workspace.write(".vscode/settings.json", JSON.stringify({ "dynamo.python": "/nowhere/python" }));
    await expect(lens, "without its server the lens goes").toBeHidden(LATE);
    await workspace.write(".vscode/settings.json", "{}");
    await expect(lens, "and comes again").toBeVisible(LATE);
    await expect(complaints).toHaveCount(0);
});
