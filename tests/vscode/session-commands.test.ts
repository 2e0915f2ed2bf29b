/** The keys at a stop, and the commands that the palette offers only during a session. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";
import type { Workbench } from "./harness/workbench.js";

const FILE = "basic.py";
const OF_SESSIONS = [
    ...["Open Stage…", "Open Graph of This Frame", "Compare What-If Graph", "Apply What-If Changes to This Call"],
    ...["View Tensor Expression…", "Patch This Instruction…", "Revert All Bytecode Patches", "Explore Stages"],
];

/** Checks how often the palette offers each command of a session. */
async function expectCommands({ page, quickInput }: Workbench, count: number): Promise<void> {
    await expect(async () => {
        await expect((await quickInput.search(">torch.compile: Open Report")).first()).toContainText("Open Report", { timeout: 3000 });
        for (const name of OF_SESSIONS) {
            const entries = await quickInput.search(`>torch.compile: ${name}`);
            await expect(entries.filter({ hasText: name }), name).toHaveCount(count, { timeout: 3000 });
        }
    }, "what the palette offers").toPass();
    await page.keyboard.press("Escape");
}

test("keys step back and view a tensor; a session's commands disappear when it ends", async ({ vscode, workspace }) => {
    const { debug, editor, page } = vscode;
    const [first, call] = [await workspace.line(FILE, "first"), await workspace.line(FILE, "call")];
    await vscode.openFile(FILE);
    await editor.setBreakpoint(first);
    await editor.setBreakpoint(call);
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", FILE, first));
    await debug.press("F5");
    await debug.waitForStop(at("compute", FILE, call));
    await expect(async () => {
        await page.keyboard.press("Alt+F10");
        await expect(debug.row("call-stack", "compute", FILE, `${call}:`)).toBeHidden({ timeout: 5000 });
    }, "Step Back").toPass();
    await expect(async () => {
        // The key does nothing before VS Code shows the stop of the step.
        await page.keyboard.press("Control+Alt+v");
        await expect(page.locator(".quick-input-title", { hasText: "View Tensor" })).toBeVisible({ timeout: 5000 });
    }, "View Tensor").toPass();
    await page.keyboard.press("Escape");

    await expectCommands(vscode, 1);
    await debug.press("Shift+F5");
    await debug.waitForEnd();
    await expectCommands(vscode, 0);
});
