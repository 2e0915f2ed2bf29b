/** Scrolls to rows of lists and trees: the page contains only visible rows. */

import { setTimeout as sleep } from "node:timers/promises";

import { expect, type Locator } from "@playwright/test";

/** Scrolls a list until a row is shown, and returns the row; `what` names the row in the error. */
export async function scrollTo(row: Locator, list: Locator, what: string): Promise<Locator> {
    const { mouse } = list.page();
    await expect(list).toBeVisible();
    await expect(async () => {
        await list.hover({ force: true, position: { x: 3, y: 3 } });
        await mouse.wheel(0, -100_000);
        // Wait until VS Code has drawn the first row.
        await expect(list.locator('.monaco-list-row[data-index="0"]')).toBeAttached({ timeout: 5000 });
        for (let page = 0; page < 50 && (await row.count()) === 0; page += 1) {
            await mouse.wheel(0, 60);
            await sleep(60);
        }
        await expect(row).toBeVisible({ timeout: 1000 });
        await expect(async () => {
            // Move the mouse away: the tooltip of the row under the mouse may cover the list.
            await mouse.move(0, 0);
            const distance = await distanceFromSight(row);
            if (distance !== 0) {
                await list.hover({ force: true, position: { x: 3, y: 3 } });
                await mouse.wheel(0, distance);
            }
            expect(distance, "nothing lies over the row").toBe(0);
        }).toPass({ timeout: 3000, intervals: [100] });
    }, `the row ${what}`).toPass();
    return row;
}

/** How far to scroll so that the middle of a row is visible. Sticky parents of rows cover the top of the list. */
async function distanceFromSight(row: Locator): Promise<number> {
    return row.evaluate((element) => {
        const box = element.getBoundingClientRect();
        const [middle, list] = [box.top + box.height / 2, element.closest(".monaco-list")];
        if (element.contains(document.elementFromPoint(box.left + 30, middle))) {
            return 0;
        }
        return middle < (list?.getBoundingClientRect().bottom ?? 0) - box.height / 2 ? -box.height : box.height;
    });
}
