/** If the Python extension is installed, the interpreter that the user chose there runs the program. */

import { at } from "./harness/debug-panes.js";
import { python } from "./harness/python.js";
import { standInPython } from "./harness/places.js";
import { expect, test } from "./harness/test.js";
import type { Workspace } from "./harness/workspace.js";

const FILE = "basic.py";

test.use({ otherExtensions: [standInPython] });

function choose(workspace: Workspace, chosen: string, setting: string): Promise<void> {
    const settings = { "standIn.interpreter": chosen, "dynamo.python": setting };
    return workspace.write(".vscode/settings.json", JSON.stringify(settings));
}

test("the Python extension's choice comes before the setting", async ({ vscode, workspace }) => {
    await choose(workspace, python(), "/nowhere/python");
    const line = await workspace.line(FILE, "first");
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await vscode.debug.waitForStop(at("compute", FILE, line));
    const rows = await vscode.debug.evaluate("__import__('sys').executable");
    await expect(rows.filter({ hasText: python() }).first()).toBeVisible();
});

test("without a choice in the Python extension, the setting is used", async ({ vscode, workspace }) => {
    await choose(workspace, "", "/nowhere/python");
    await vscode.openFile(FILE);
    await vscode.startDebugging();
    await expect(await vscode.dialog()).toContainText("/nowhere/python");
});
