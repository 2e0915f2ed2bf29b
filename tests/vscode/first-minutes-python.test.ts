/** The first minutes of a new user who has the Python extension, and chose the interpreter there. */

import { at } from "./harness/debug-panes.js";
import { test } from "./harness/newcomer.js";
import { standInPython } from "./harness/places.js";
import { python } from "./harness/python.js";
import { expect } from "./harness/test.js";

test.use({ profile: "empty", settings: {}, otherExtensions: [standInPython] });

test("F5 runs the Python extension's choice and stops in a trace", async ({ gestures, vscode, workspace, picture }, { project }) => {
    const { debug, editor, page } = vscode;
    await workspace.remove(".venv");
    await workspace.write(".vscode/settings.json", JSON.stringify({ "standIn.interpreter": python() }));
    const line = await workspace.line("basic.py", "first");
    await gestures.do("open the file", () => vscode.openFile("basic.py"));
    await gestures.do("click left of the line", () => editor.clickBreakpoint(line));
    await gestures.do("F5", () => vscode.startDebugging());
    await debug.waitForStop(at("compute", "basic.py", line));
    await expect(page.locator(".notification-toast"), "nothing asks").toHaveCount(0);
    await picture(`first-stop-python-${project.name}`);
});
