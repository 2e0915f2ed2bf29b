/** The output of each rank of a distributed job appears in its own terminal. */

import type { Locator } from "@playwright/test";

import { expect, test } from "./harness/test.js";
import { jobJson } from "./harness/workspace.js";

const PRINTING = "prints.py";

test("each rank prints in its own terminal", async ({ vscode, workspace }) => {
    const { debug, page } = vscode;
    await workspace.write(PRINTING, 'import os\n\nprint("here is", os.environ["RANK"])\n');
    await workspace.write(".vscode/settings.json", JSON.stringify({ "terminal.integrated.gpuAcceleration": "off" }));
    await workspace.write(".vscode/launch.json", jobJson({ rankOutput: "terminal", internalConsoleOptions: "neverOpen" }, PRINTING));
    await vscode.openFile(PRINTING);
    await vscode.startDebugging();
    const tab = (rank: number): Locator => page.locator(".terminal-tabs-entry", { hasText: `rank ${rank} (local ${rank})` });
    for (const rank of [0, 1]) {
        await expect(tab(rank), `rank ${rank} has a terminal`).toBeVisible({ timeout: 90_000 });
    }
    await debug.waitForEnd();
    for (const rank of [0, 1]) {
        await tab(rank).click();
        const rows = page.locator(".terminal-wrapper.active .xterm-rows");
        await expect(rows, `what rank ${rank} printed`).toContainText(`here is ${rank}`);
        await expect(rows).not.toContainText(`here is ${1 - rank}`);
    }
});
