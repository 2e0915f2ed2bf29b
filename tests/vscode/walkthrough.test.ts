/** The walkthrough, from its first page to a stop in one of its examples. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

test("a step of the walkthrough opens its example, and is ticked when the program has stopped", async ({ vscode, picture }) => {
    const { debug, page } = vscode;
    await vscode.command("Welcome: Open Walkthrough");
    await vscode.quickInput.choose("Debug torch.compile");
    const step = page.locator(".getting-started-step", { hasText: "Stop inside a compiled function" });
    await expect(page.locator(".getting-started-step .step-title")).toHaveCount(7);
    await step.locator(".step-title").click();
    await picture("walkthrough");
    await step.getByRole("button", { name: "Open an Example" }).click();
    await expect(page.locator(".tab.active", { hasText: "breakpoint.py" })).toBeVisible();
    await expect(step.locator(".codicon-getting-started-step-checked"), "opening is not doing").toHaveCount(0);
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", "breakpoint.py", 12));
    await debug.press("Shift+F5");
    await debug.waitForEnd();
    await page.locator(".tab", { hasText: "Walkthrough" }).click();
    await expect(step.locator(".codicon-getting-started-step-checked").first(), "it is done").toBeVisible();
});

test("a run is recorded from the Welcome page, where no program is open: of an example, with its report", async ({ vscode, picture }) => {
    const { page } = vscode;
    await vscode.command("Welcome: Open Walkthrough");
    await vscode.quickInput.choose("Debug torch.compile");
    const step = page.locator(".getting-started-step", { hasText: "Record a run and read its report" });
    await step.locator(".step-title").click();
    await step.getByRole("button", { name: "Record This File" }).click();
    await expect(page.locator(".tab", { hasText: "recompile.py" })).toBeVisible();
    const toast = page.locator(".notification-toast", { hasText: "Record written." });
    await expect(toast).toBeVisible({ timeout: 90_000 });
    await toast.getByRole("button", { name: "Open Report" }).click();
    await expect(page.locator(".tab.active", { hasText: "torch.compile report" })).toBeVisible();
    await picture("walkthrough-report");
    await page.locator(".tab", { hasText: "Walkthrough" }).click();
    await expect(step.locator(".codicon-getting-started-step-checked").first(), "it is done").toBeVisible();
});
