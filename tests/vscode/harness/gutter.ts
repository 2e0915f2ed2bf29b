/** The gutter of an editor, where clicks set breakpoints and icons show them. Lines are 1-based. */

import { setTimeout as sleep } from "node:timers/promises";

import { expect, type Locator, type Page } from "@playwright/test";

export class Gutter {
    constructor(
        private readonly page: Page,
        private readonly area: () => Locator,
    ) {}

    /**
     * Clicks in the gutter until the breakpoint's glyph stays there. VS Code ignores a click before the editor is
     * ready. If a link over a function appears meanwhile, the click hits another line, and the breakpoint there is
     * removed.
     */
    async clickBreakpoint(line: number): Promise<void> {
        const before = (await this.breakpointLines()).filter((other) => other !== line);
        await expect(async () => {
            const lines = await this.breakpointLines();
            const wrong = lines.filter((other) => other !== line && !before.includes(other));
            for (const one of lines.includes(line) ? wrong : [...wrong, line]) {
                const spot = await this.settledSpot(one);
                await this.page.mouse.click(spot.x, spot.y);
            }
            await expect.poll(() => this.breakpointLines(), { timeout: 1500 }).toContain(line);
            await this.settledSpot(line);
            // An opened panel may have covered earlier lines.
            const shown = await this.area().locator(".margin-view-overlays .line-numbers").allInnerTexts();
            const expected = [...before.filter((other) => shown.includes(String(other))), line];
            expect(await this.breakpointLines()).toEqual(expected.sort((one, other) => one - other));
        }, `a click sets a breakpoint at line ${line}`).toPass();
    }

    /** Presses F9 at the cursor's line until the breakpoint's glyph appears: keys before the focus are lost. */
    async pressBreakpoint(line: number): Promise<void> {
        await expect(async () => {
            if (!(await this.breakpointLines()).includes(line)) {
                await expect(this.area().locator(".monaco-editor.focused").first()).toBeVisible({ timeout: 3000 });
                await this.page.keyboard.press("F9");
            }
            await expect.poll(() => this.breakpointLines(), { timeout: 5000, intervals: [50] }).toContain(line);
        }, `F9 sets a breakpoint at line ${line}`).toPass();
    }

    /** The lines that show a breakpoint in the gutter. */
    private async breakpointLines(): Promise<number[]> {
        return this.area().evaluate((editor) => {
            const middle = (element: Element): number => {
                const { top, bottom } = element.getBoundingClientRect();
                return (top + bottom) / 2;
            };
            const icons = [...editor.querySelectorAll('.glyph-margin-widgets > [class*="codicon-debug-breakpoint"]')].map(middle);
            return [...editor.querySelectorAll(".margin-view-overlays .line-numbers")]
                .filter((number) => icons.some((icon) => Math.abs(icon - middle(number)) < 4))
                .map((number) => Number(number.textContent))
                .sort((one, other) => one - other);
        });
    }

    /** Gives the breakpoint at a line a condition ("Expression"), a "Log Message", a "Hit Count" or a "Mode". */
    async editBreakpoint(line: number, kind: string, value: string): Promise<void> {
        const box = this.page.locator(".breakpoint-widget");
        await expect(async () => {
            await this.openMenu(line);
            const entry = this.page.locator(".monaco-menu .action-item", { hasText: /^Edit Breakpoint/ });
            // A menu ignores a click right after it opens, because that may be the release of the right button. If no
            // menu opens, try again instead of waiting until the time limit.
            await entry.hover({ timeout: 2000 });
            await entry.click({ delay: 200, timeout: 2000 });
            await expect(box).toBeVisible({ timeout: 2000 });
        }, "the box that edits a breakpoint opens").toPass();
        const [kinds, modes] = [box.locator("select").nth(0), box.locator("select").nth(1)];
        await (kind === "Mode" ? modes : kinds).selectOption({ label: kind === "Mode" ? value : kind });
        if (kind !== "Mode") {
            await this.focusBox(box);
            await this.page.keyboard.type(value);
        }
        await expect(async () => {
            if (await box.isVisible()) {
                await this.focusBox(box);
                await this.page.keyboard.press("Enter");
            }
            await expect(box).toBeHidden({ timeout: 3000 });
        }, "the box that edits a breakpoint closes").toPass();
        // Wait for the focus: if it came late, the Enter of the next box would insert a line.
        await expect(this.area().locator(".monaco-editor.focused").first()).toBeVisible();
    }

    /** Focuses the box that edits a breakpoint. A stop focuses the file, sometimes late: keys would then change its text. */
    private async focusBox(box: Locator): Promise<void> {
        const editor = box.locator(".monaco-editor").first();
        await expect(async () => {
            await editor.click({ timeout: 3000 });
            await expect(editor).toHaveClass(/\bfocused\b/, { timeout: 1000 });
        }, "the box that edits a breakpoint has the focus").toPass();
    }

    /** Opens the menu of a line's gutter. Tries again if a link over a function appears, which moves the line. */
    private async openMenu(line: number): Promise<void> {
        if (await this.page.locator(".monaco-menu").first().isVisible()) {
            await this.page.keyboard.press("Escape");
        }
        const spot = await this.settledSpot(line);
        await this.page.mouse.move(spot.x, spot.y);
        await this.page.mouse.down({ button: "right" });
        // The menu is open. A slow release of the button over its first entry would choose that entry.
        await this.page.mouse.move(spot.x - 40, spot.y);
        await this.page.mouse.up({ button: "right" });
    }

    /** The gutter of a line, once its position is stable: links over functions appear late and move the lines below. */
    private async settledSpot(line: number): Promise<{ x: number; y: number }> {
        let spot = await this.spot(line);
        for (let quiet = 0; quiet < 4; ) {
            await sleep(150);
            const next = await this.spot(line);
            quiet = next.y === spot.y ? quiet + 1 : 0;
            spot = next;
        }
        return spot;
    }

    /** The position to click at a visible line. */
    async spot(line: number): Promise<{ x: number; y: number }> {
        const number = this.area().locator(".line-numbers", { hasText: new RegExp(`^${line}$`) }).first();
        const box = await number.boundingBox({ timeout: 5000 });
        const margin = await this.area().locator(".glyph-margin").first().boundingBox({ timeout: 5000 });
        if (box === null || margin === null) {
            throw new Error(`line ${line} is not visible`);
        }
        return { x: margin.x + margin.width / 2, y: box.y + box.height / 2 };
    }
}
