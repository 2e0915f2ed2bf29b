/** Opens the side bar, which VS Code also opens by itself. */

import { expect, type Locator, type Page } from "@playwright/test";

/** Opens the side bar of a tab in the activity bar. Repeats the click: if VS Code is opening it, a click closes it. */
export async function openSideBar(page: Page, tab: RegExp, content: Locator): Promise<void> {
    await expect(async () => {
        if (!(await content.isVisible())) {
            await page.locator(".activitybar").getByRole("tab", { name: tab }).click();
        }
        await expect(content).toBeVisible({ timeout: 3000 });
    }, `the side bar ${tab.source} opens`).toPass();
}
