/** Presses the keys of debugging. */

import type { Page } from "@playwright/test";

const BUTTONS = { F5: "continue", F10: "step-over", F11: "step-into", "Shift+F11": "step-out", "Shift+F5": "stop" };

/**
 * Clicks the button of a key in the Run and Debug view. Before VS Code shows the stop, the key would start another
 * session or do nothing, while the button cannot be clicked yet. If another view hides the buttons, presses the key.
 */
export async function pressKey(page: Page, key: keyof typeof BUTTONS): Promise<void> {
    const button = `.part.sidebar .codicon-debug-${BUTTONS[key]}`;
    if (await page.locator(button).first().isVisible()) {
        await page.locator(`${button}:not(.disabled)`).first().click();
    } else {
        await page.keyboard.press(key);
    }
}
