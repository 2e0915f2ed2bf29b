/** The page of a tensor, which "View Tensor" opens. */

import type { FrameLocator } from "@playwright/test";

import { expect } from "./test.js";
import type { Workbench } from "./workbench.js";

/** Presses the button of a tensor in the Variables pane, and returns the page that opens. */
export async function view(vscode: Workbench, name: string): Promise<FrameLocator> {
    const { debug, page } = vscode;
    await expect(async () => {
        const row = await debug.reveal("variables", `${name} =`);
        await row.hover();
        await row.getByRole("button", { name: "View Tensor" }).click({ timeout: 2000 });
        await expect(page.locator(".tab.active", { hasText: name })).toBeVisible({ timeout: 3000 });
    }, `the page of ${name} opens`).toPass();
    return tensorPage(vscode);
}

/** The active page. */
export function tensorPage({ page }: Workbench): FrameLocator {
    return page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
}
