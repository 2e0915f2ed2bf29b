/** Links from a kernel in the explored stages to the file that Inductor wrote. Uses a device that simulates a GPU. */

import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

const FILE = "triton_programs/generated.py";
const COMPILES = 120_000;

test("a link leads from a kernel to its file", async ({ vscode, workspace }) => {
    test.setTimeout(5 * 60_000);
    const { debug, editor, page } = vscode;
    const compiled = await workspace.line(FILE, "functions");
    await workspace.write(".vscode/launch.json", launchJson({ explore: true, args: ["${workspaceFolder}/generated"] }));
    await vscode.openFile(FILE);
    await editor.setBreakpoint(compiled);
    await vscode.startDebugging();
    await expect(debug.row("call-stack", "main", "generated.py", `${compiled}:`)).toBeVisible({ timeout: COMPILES });
    await vscode.command("torch.compile: Explore Stages");
    const kernels = page.locator(".editor-group-container", {
        has: page.locator(".tab.active", { hasText: "forward-kernels of" }),
    });
    // The editor shows only the beginning of the path.
    const link = kernels.locator(".detected-link").first();
    await expect(link).toBeVisible();
    // The editor draws the line again while Control is held, and a click on the element before is lost.
    const opened = page.locator(".tab.active", { hasText: /^c\w{20,}\.py/ });
    await expect(async () => {
        if (!(await opened.isVisible())) {
            await link.click({ modifiers: ["ControlOrMeta"], position: { x: 20, y: 8 }, timeout: 5000 });
        }
        await expect(opened).toBeVisible({ timeout: 5000 });
    }, "the link opens the file").toPass();
    await expect(page.locator(".view-line", { hasText: "def\u00a0triton_" }).last()).toBeVisible();
});
