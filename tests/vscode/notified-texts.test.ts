/** What a program says is text in a notification: a click on a link of Markdown there would run a command. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

const PROGRAM = `note = "[Show the tensor](command:workbench.action.terminal.new)"
print(note)
`;

test("a program's text offers no command", async ({ vscode, workspace }) => {
    const { debug, editor, page } = vscode;
    await workspace.write("says.py", PROGRAM);
    await vscode.openFile("says.py");
    await editor.setBreakpoint(2);
    await vscode.startDebugging();
    await debug.waitForStop(at("<module>", "says.py", 2));
    await vscode.command("View Tensor of an Expression");
    await vscode.quickInput.answer("note");
    const told = page.locator(".notification-toast", { hasText: "note is not a tensor" });
    await expect(told).toContainText("[Show the tensor] (command:workbench.action.terminal.new)");
    await expect(told.locator(".notification-list-item-message a")).toHaveCount(0);
});
