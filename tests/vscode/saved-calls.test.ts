/** Saves a call at a stop, and debugs it from its folder after the user has consented to its code. */

import { join } from "node:path";

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

const FILE = "basic.py";

test("a call is saved at a stop, and debugged without the program", async ({ vscode, workspace }) => {
    const { debug, editor, page } = vscode;
    const line = await workspace.line(FILE, "in_helper");
    await vscode.openFile(FILE);
    await editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("scale", FILE, line));
    await vscode.command("torch.compile: Save This Call");
    const saved = page.locator(".notification-toast", { hasText: "call of compute is saved in" });
    await expect(saved).toContainText(join("saved-calls", "compute-1"));
    await saved.getByRole("button", { name: "Debug It" }).click();

    const dialog = page.locator(".monaco-dialog-box");
    await expect(dialog).toContainText("the code shown here is run");
    await expect(page.locator(".view-lines").first()).toContainText("def scale(tensor, factor):");
    await workspace.remove(FILE);
    await dialog.getByRole("button", { name: "Run This Code" }).click();
    // The program is still stopped, so the call gets its own session.
    const session = page.locator(".debug-call-stack .monaco-list-row", { hasText: "Saved Call" });
    await expect(session).toContainText("Tracing compute [0/0]", { ignoreCase: true, timeout: 60_000 });
});
