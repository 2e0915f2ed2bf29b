/** Texts of a program are shown as text: in notifications, where a link could run a command, and in pages. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

const PROGRAM = `import torch
note = "[Show the tensor](command:workbench.action.terminal.new)"
print(note)
`;

test("a program's text cannot run a command", async ({ vscode, workspace }) => {
    const { debug, editor, page } = vscode;
    await workspace.write("says.py", PROGRAM);
    await vscode.openFile("says.py");
    await editor.setBreakpoint(3);
    await vscode.startDebugging();
    await debug.waitForStop(at("<module>", "says.py", 3));
    await vscode.command("View Tensor Expression");
    await vscode.quickInput.answer("note");
    const told = page.locator(".notification-toast", { hasText: "note is not a tensor" });
    await expect(told).toContainText("[Show the tensor] (command:workbench.action.terminal.new)");
    await expect(told.locator(".notification-list-item-message a")).toHaveCount(0);

    await vscode.command("View Tensor Expression");
    const expression = "torch.ones(2) # <img src=x onerror=alert(1)>";
    await vscode.quickInput.answer(expression);
    const tensor = page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    await expect(tensor.locator("#name")).toHaveText(expression);
    await expect(tensor.locator("img")).toHaveCount(0);
});
