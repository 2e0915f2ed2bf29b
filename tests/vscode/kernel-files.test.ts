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
    await link.click({ modifiers: ["ControlOrMeta"], position: { x: 20, y: 8 } });
    await expect(page.locator(".tab.active", { hasText: /^c\w{20,}\.py/ })).toBeVisible();
    await expect(page.locator(".view-line", { hasText: "def\u00a0triton_" }).last()).toBeVisible();
});
