/** What if: sets a variable of a held trace, jumps to another line, and compares the graphs in the diff editor. */

import type { Locator } from "@playwright/test";

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";
import type { Workbench } from "./harness/workbench.js";

const FILE = "basic.py";

/** Gives a variable another value, with "Set Value" in its menu. */
async function setValue({ page }: Workbench, row: () => Promise<Locator>, value: string): Promise<void> {
    const entry = page.locator(".monaco-menu .action-item:not(.disabled) .action-label", { hasText: "Set Value" });
    await expect(async () => {
        await (await row()).click({ button: "right" });
        await expect(entry).toBeVisible({ timeout: 2000 });
    }, "its menu opens").toPass();
    // A menu ignores clicks just after it has opened.
    await expect(async () => {
        await entry.click({ timeout: 2000 });
        await expect(entry).toBeHidden({ timeout: 2000 });
    }, "it is chosen").toPass();
    const input = page.locator(".debug-variables .monaco-inputbox input:visible");
    await input.fill(value);
    await input.press("Enter");
}

test("a variable is set in a trace, and the graphs are compared", async ({ vscode, workspace }) => {
    const { debug, editor, page } = vscode;
    const [branch, call, after] = [workspace.line(FILE, "branch"), workspace.line(FILE, "call"), workspace.line(FILE, "after_call")];
    await vscode.openFile(FILE);
    await editor.setBreakpoint(await branch);
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", FILE, await branch));
    await vscode.command("torch.compile: Compare What-If Graph");
    await expect(page.locator(".notification-toast"), "nothing was changed yet").toContainText("no trace was changed");
    await page.keyboard.press("Escape");

    await setValue(vscode, () => debug.reveal("variables", "mode ="), "'other'");
    await expect(debug.headline()).toHaveText("Tracing compute [0/0], changed by the debugger");
    await debug.waitForStop(at("compute", FILE, await branch));
    await expect(debug.row("variables", "mode =")).toContainText("'other'");
    // Not the key: VS Code ignores keys while the debugger traces again.
    await page.locator(".part.sidebar .codicon-debug-step-over:not(.disabled)").click();
    await debug.waitForStop(at("compute", FILE, await after));

    // The changed trace ends without calling the helper; the program's own trace calls it.
    await debug.press("F5");
    const told = page.locator(".notification-toast", { hasText: "differs from the program's" });
    await told.getByRole("button", { name: "Compare" }).click();
    // Meanwhile the second call, a cache hit, stops, and its file may open before the comparison.
    const tab = page.locator(".tab", { hasText: "program ↔ what-if" });
    await expect(tab).toBeVisible();
    await expect(debug.headline()).toHaveText("Call 2 of compute [0/0]");
    await debug.waitForStop(at("compute", FILE, await branch));
    await tab.click();
    const diff = page.locator(".monaco-diff-editor");
    await expect(diff.locator(".editor.original .view-lines")).toContainText("doubled = z * 2");
    await expect(diff.locator(".editor.modified .view-lines")).not.toContainText("doubled = z * 2");
    // Jump to another line.
    await vscode.openFile(FILE);
    await editor.goToLine(await call);
    await vscode.command("Debug: Jump to Cursor");
    await expect(debug.headline()).toHaveText("Call 2 of compute [0/0], changed by the debugger");
    await debug.waitForStop(at("compute", FILE, await call));
    await vscode.command("torch.compile: Apply What-If Changes to This Call");
    await expect(page.locator(".notification-toast").first()).toContainText("the graph of the changed trace");
    await debug.press("F5");
    await debug.waitForEnd();
});
