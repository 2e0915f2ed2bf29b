/** Fixes at a stop at a recompile: links above the stopped line, and actions of Ctrl+. there. */

import { LATE } from "./harness/late.js";
import { expect, test } from "./harness/test.js";

const FILE = "sizes.py";
const PROGRAM = `import torch


@torch.compile(backend="eager")
def total(x):
    y = x * 2
    return y.sum()


for size in (3, 5):
    print(total(torch.ones(size)).item())
`;

test("a recompile's fix is one click away at the stop", async ({ vscode, workspace, picture }) => {
    const { debug, editor, page } = vscode;
    await workspace.write(FILE, PROGRAM);
    await vscode.openFile(FILE);
    await editor.setBreakpoint(1);
    await vscode.startDebugging();
    await debug.waitForStop(/<module> sizes.py 1:/);
    await (await debug.reveal("breakpoints", "Recompiles")).getByRole("checkbox").click();
    await debug.press("F5");
    await debug.waitForStop(/^total sizes.py/);
    const fix = "Mark size 0 of x as dynamic before the call (maybe_mark_dynamic)";
    const link = editor.area.locator(".codelens-decoration a", { hasText: `${fix} (not tried)` });
    await expect(link).toBeVisible(LATE);
    const trial = editor.area.locator(".codelens-decoration a", { hasText: "Try it first" });
    await expect(trial).toBeVisible();
    await expect(trial, "the window is as wide as what it offers").toBeInViewport({ ratio: 1 });
    // The stopped line differs from the line of the guard.
    await editor.area.locator(".view-line", { hasText: "@torch.compile" }).click();
    await page.keyboard.press("Control+.");
    const menu = page.locator(".action-widget", { hasText: fix });
    await expect(menu).toBeVisible();
    await picture("stop-fixes");
    await page.keyboard.press("Escape");
    await link.click();
    await expect.poll(() => editor.text()).toContain("torch._dynamo.maybe_mark_dynamic(");
    await debug.press("F5");
    await debug.waitForEnd();
    await expect(link, "the stop is over").toHaveCount(0);
});

const BRANCH = `import torch


@torch.compile(backend="eager")
def gate(x):
    if x.sum() > 2:
        return x * 2
    return x


print(gate(torch.ones(3)).sum().item())
`;

test("at a branch on a tensor, one click tries torch.cond, and another applies it", async ({ vscode, workspace, picture }) => {
    const { debug, editor, page } = vscode;
    await workspace.write("gated.py", BRANCH);
    await vscode.openFile("gated.py");
    await editor.setBreakpoint(1);
    await vscode.startDebugging();
    await debug.waitForStop(/<module> gated.py 1:/);
    await (await debug.reveal("breakpoints", "Graph Breaks")).getByRole("checkbox").click();
    await debug.press("F5");
    await debug.waitForStop(/^gate gated.py 6:/);
    const link = editor.area.locator(".codelens-decoration a", { hasText: "Trace both branches: torch.cond" });
    await expect(link).toBeVisible(LATE);
    await link.click();
    const result = page.locator(".notification-toast", { hasText: "torch.cond: It helps, and the result is the same" });
    await expect(result).toBeVisible(LATE);
    await picture("stop-branch-fix");
    await result.getByRole("button", { name: "Apply" }).click();
    await expect.poll(() => editor.text()).toMatch(/return.torch\.cond\(.*lambda/);
    await debug.press("F5");
    await debug.waitForEnd();
});
