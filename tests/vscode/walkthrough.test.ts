/** Follows the walkthrough from its first page to a stop in one of its examples. */

import type { Locator } from "@playwright/test";

import { at } from "./harness/debug-panes.js";
import { openSideBar } from "./harness/side-bar.js";
import { expect, test } from "./harness/test.js";
import type { Workbench } from "./harness/workbench.js";

/** Opens the walkthrough. Repeats this, because a late move of the focus closes the list of walkthroughs. */
async function openWalkthrough(vscode: Workbench): Promise<void> {
    await expect(async () => {
        await vscode.command("Welcome: Open Walkthrough");
        await vscode.page.locator(".quick-input-list .monaco-list-row", { hasText: "Debug torch.compile" }).first().click({ timeout: 5_000 });
    }, "the walkthrough opens").toPass();
}

/** Waits for the picture of the present step. VS Code draws the page again then, which could swallow a click. */
async function expectMedia({ page }: Workbench): Promise<void> {
    const shown = page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame").getByRole("img");
    await expect.poll(() => shown.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBeGreaterThan(0);
}

test("a step of the walkthrough opens its example, and is ticked when the program has stopped", async ({ vscode, picture }) => {
    const { debug, page } = vscode;
    await openWalkthrough(vscode);
    const step = page.locator(".getting-started-step", { hasText: "Stop inside a compiled function" });
    await expect(page.locator(".getting-started-step .step-title")).toHaveCount(7);
    await step.locator(".step-title").click();
    await expectMedia(vscode);
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

test("with no program open, the Welcome page records a run of an example, with its report", async ({ vscode, picture }) => {
    const { page } = vscode;
    await openWalkthrough(vscode);
    const step = page.locator(".getting-started-step", { hasText: "Record a run and read its report" });
    await step.locator(".step-title").click();
    await expectMedia(vscode);
    await step.getByRole("button", { name: "Record This File" }).click();
    await expect(page.locator(".tab", { hasText: "recompile.py" })).toBeVisible();
    const toast = page.locator(".notification-toast", { hasText: "Record written." });
    await expect(toast).toBeVisible({ timeout: 90_000 });
    await toast.getByRole("button", { name: "Open Report" }).click();
    await expect(page.locator(".tab.active", { hasText: "torch.compile report" })).toBeVisible();
    const report = page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    await expect(report.getByText("scaled", { exact: false }).first()).toBeVisible();
    await page.locator(".tab.active", { hasText: "torch.compile report" }).getByRole("button", { name: /^Close/ }).click();
    await page.locator(".tab", { hasText: "Walkthrough" }).click();
    await expect(step.locator(".codicon-getting-started-step-checked").first(), "it is done").toBeVisible();
    await picture("walkthrough-report");
    // The step's own button opens the report, too.
    await step.getByRole("button", { name: "Open Report" }).click();
    await expect(page.locator(".tab.active", { hasText: "torch.compile report" })).toBeVisible();
});

test("the first step of the walkthrough chooses an interpreter", async ({ vscode, picture }) => {
    const { page } = vscode;
    await openWalkthrough(vscode);
    const step = page.locator(".getting-started-step", { hasText: "Install dynamo-dap next to torch" });
    await step.locator(".step-title").click();
    await expectMedia(vscode);
    await picture("walkthrough-install");
    await step.getByRole("button", { name: "Choose Interpreter" }).click();
    await expect(page.locator(".quick-input-list .monaco-list-row", { hasText: "torch" }).first()).toBeVisible();
    await picture("walkthrough-interpreter");
});

const FILTERED: [string, string, RegExp][] = [
    ["See why the graph breaks", "Graph Breaks", /^step graph_break.py/],
    ["See why it recompiles", "Recompiles", /^scaled recompile.py/],
    ["Find the line that makes NaN", "NaN and Inf", /^share nan.py/],
];

test("the steps of a graph break, a recompile, a NaN and generated code are ticked at such a stop", async ({ vscode, workspace, picture }) => {
    test.setTimeout(8 * 60_000);
    const { debug, editor, page } = vscode;
    const step = (title: string): Locator => page.locator(".getting-started-step", { hasText: title });
    const done = (title: string): Locator => step(title).locator(".codicon-getting-started-step-checked");
    // VS Code shows the filters only after the first session has begun.
    await vscode.openFile("basic.py");
    await vscode.startDebugging();
    await debug.waitForEnd();
    await debug.foldPane("Breakpoints", true);
    await openWalkthrough(vscode);
    for (const [title, filter, top] of FILTERED) {
        await step(title).locator(".step-title").click();
        await expect(done(title)).toHaveCount(0);
        await step(title).getByRole("button", { name: "Open an Example" }).click();
        await expect(page.locator(".tab.active", { hasText: ".py" })).toBeVisible();
        const box = (await debug.reveal("breakpoints", filter)).getByRole("checkbox");
        await box.click();
        await vscode.startDebugging();
        await debug.waitForStop(top);
        await box.click();
        await debug.press("Shift+F5");
        await debug.waitForEnd();
        await page.locator(".tab", { hasText: "Walkthrough" }).click();
        await expect(done(title).first(), "it is done").toBeVisible();
    }

    const generated = "Step the generated code";
    const line = await workspace.line("basic.py", "first");
    await step(generated).locator(".step-title").click();
    await expect(done(generated)).toHaveCount(0);
    await step(generated).getByRole("button", { name: "Open the Run and Debug View" }).click();
    await vscode.openFile("basic.py");
    await editor.setBreakpoint(line);
    await editor.editBreakpoint(line, "Mode", "Run-time");
    await vscode.startDebugging();
    await debug.waitForStop(/^compute \(generated #\d+\)/);
    await debug.press("Shift+F5");
    await debug.waitForEnd();
    await page.locator(".tab", { hasText: "Walkthrough" }).click();
    await expect(done(generated).first(), "it is done").toBeVisible();
    await picture("walkthrough-done");
});

test("the extension's page shows its pictures", async ({ vscode, picture }) => {
    const { page } = vscode;
    await openSideBar(page, /^Extensions/, page.locator(".extensions-viewlet"));
    await page.locator(".extension-list-item", { hasText: "torch.compile debugger" }).click();
    const details = page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    const pictures = details.locator("img[src^='data:']");
    await expect(pictures).toHaveCount(5);
    await expect.poll(() => pictures.evaluateAll((images: HTMLImageElement[]) => images.filter((image) => image.naturalWidth > 100).length)).toBe(5);
    await picture("extension-page");
});
