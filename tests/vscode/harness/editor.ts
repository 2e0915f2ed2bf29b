/** The editor that has the focus: its text, its gutter with breakpoints, its hovers. Lines are 1-based. */

import { setTimeout as sleep } from "node:timers/promises";

import { expect, type Locator, type Page } from "@playwright/test";

import { QuickInput } from "./quick-input.js";

export class Editor {
    private readonly quickInput: QuickInput;

    constructor(private readonly page: Page) {
        this.quickInput = new QuickInput(page);
    }

    /** The editor that has the focus, or had it last. */
    get area(): Locator {
        return this.page.locator(".editor-group-container.active .editor-instance").first();
    }

    /** The lines that an editor shows, without the padding of VS Code's rendering. */
    async text(): Promise<string> {
        const lines = await this.area.locator(".view-line").evaluateAll((found) =>
            found
                .map((line) => ({ top: line.getBoundingClientRect().top, text: line.textContent }))
                .sort((a, b) => a.top - b.top)
                .map(({ text }) => text.replace(/\u00a0/g, " ")),
        );
        return lines.join("\n");
    }

    /** The text of the line where the program is stopped. */
    async currentLine(): Promise<string> {
        const pointer = await this.area.locator(".glyph-margin-widgets .codicon-debug-stackframe").first().boundingBox();
        return pointer === null ? "" : this.textAt(pointer.y + pointer.height / 2);
    }

    /** The text of one line, with what is shown at its end. */
    async lineText(line: number): Promise<string> {
        const { y } = await this.gutterSpot(line);
        return this.textAt(y);
    }

    /** The number of the first line that is shown and contains a text. */
    async lineWith(text: string): Promise<number> {
        const middle = await this.area.locator(".view-line", { hasText: text.replace(/ /g, "\u00a0") }).first().boundingBox({ timeout: 5000 });
        const numbers = await this.area.locator(".margin-view-overlays .line-numbers").evaluateAll(
            (found, y) =>
                found
                    .filter((element) => {
                        const { top, bottom } = element.getBoundingClientRect();
                        return top < y && y < bottom;
                    })
                    .map((element) => Number(element.textContent)),
            middle === null ? NaN : middle.y + middle.height / 2,
        );
        const [line] = numbers;
        if (line === undefined) {
            throw new Error(`no line with ${text} is shown`);
        }
        return line;
    }

    private textAt(y: number): Promise<string> {
        return this.area.locator(".view-line").evaluateAll((lines, middle) => {
            const found = lines.find((element) => {
                const { top, bottom } = element.getBoundingClientRect();
                return top < middle && middle < bottom;
            });
            return (found?.textContent ?? "").replace(/\u00a0/g, " ");
        }, y);
    }

    /** Moves the cursor to a line, so that it is visible. */
    async goToLine(line: number): Promise<void> {
        await this.quickInput.goToLine(line);
    }

    /**
     * Clicks in the gutter until the breakpoint's glyph stays there: a click before the editor is ready is ignored, and
     * one while a link over a function comes meets another line, where it is taken back.
     */
    async setBreakpoint(line: number): Promise<void> {
        await this.goToLine(line);
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
            expect(await this.breakpointLines()).toEqual([...before, line].sort((one, other) => one - other));
        }, `a click sets a breakpoint at line ${line}`).toPass({ timeout: 30_000 });
    }

    /** The lines that show a breakpoint in the gutter. */
    private async breakpointLines(): Promise<number[]> {
        return this.area.evaluate((editor) => {
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
            const spot = await this.settledSpot(line);
            await this.page.mouse.click(spot.x, spot.y, { button: "right" });
            const entry = this.page.locator(".monaco-menu .action-item", { hasText: /^Edit Breakpoint/ });
            // A menu ignores a click right after it opened: that may be the release of the right button.
            await entry.hover();
            await entry.click({ delay: 200 });
            await expect(box).toBeVisible({ timeout: 2000 });
        }, "the box that edits a breakpoint opens").toPass({ timeout: 30_000 });
        const [kinds, modes] = [box.locator("select").nth(0), box.locator("select").nth(1)];
        if (kind === "Mode") {
            await modes.selectOption({ label: value });
            await box.locator(".monaco-editor").click();
        } else {
            await kinds.selectOption({ label: kind });
            await box.locator(".monaco-editor").click();
            await this.page.keyboard.type(value);
        }
        await this.page.keyboard.press("Enter");
        await expect(box).toBeHidden();
    }

    /** The classes of the icons in the gutter of a line: `codicon-debug-breakpoint`, `codicon-debug-stackframe` ... */
    async glyph(line: number): Promise<string> {
        const { y } = await this.gutterSpot(line);
        return this.area.locator(".glyph-margin-widgets > *").evaluateAll(
            (icons, middle) =>
                icons
                    .filter((icon) => {
                        const { top, bottom } = icon.getBoundingClientRect();
                        return top < middle && middle < bottom;
                    })
                    .map((icon) => icon.classList.value)
                    .join(" "),
            y,
        );
    }

    /** Rests the pointer on a word of a line and returns the debug hover. */
    async hover(line: number, word: string): Promise<Locator> {
        const { y } = await this.gutterSpot(line);
        const spot = await this.area.locator(".view-line").evaluateAll(
            (lines, [middle, wanted]) => {
                const found = lines.find((element) => {
                    const { top, bottom } = element.getBoundingClientRect();
                    return top < middle && middle < bottom;
                });
                const walker = document.createTreeWalker(found ?? document.body, NodeFilter.SHOW_TEXT);
                for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
                    const start = new RegExp(`\\b${wanted}\\b`).exec(node.textContent ?? "")?.index;
                    if (start !== undefined) {
                        const range = document.createRange();
                        range.setStart(node, start);
                        range.setEnd(node, start + wanted.length);
                        const box = range.getBoundingClientRect();
                        return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
                    }
                }
                return undefined;
            },
            [y, word] as const,
        );
        if (spot === undefined) {
            throw new Error(`line ${line} does not show ${word}`);
        }
        const hover = this.page.locator(".debug-hover-widget");
        await expect(async () => {
            await this.page.mouse.move(spot.x, spot.y + 100);
            await this.page.mouse.move(spot.x, spot.y, { steps: 4 });
            await expect(hover).toBeVisible({ timeout: 3000 });
        }, `the debug hover of ${word} opens`).toPass({ timeout: 20_000 });
        return hover;
    }

    /** The gutter of a line once it stays where it is: links over functions come late and move the lines below. */
    private async settledSpot(line: number): Promise<{ x: number; y: number }> {
        let spot = await this.gutterSpot(line);
        for (let quiet = 0; quiet < 4; ) {
            await sleep(150);
            const next = await this.gutterSpot(line);
            quiet = next.y === spot.y ? quiet + 1 : 0;
            spot = next;
        }
        return spot;
    }

    private async gutterSpot(line: number): Promise<{ x: number; y: number }> {
        const number = this.area.locator(".line-numbers", { hasText: new RegExp(`^${line}$`) }).first();
        const box = await number.boundingBox({ timeout: 5000 });
        const margin = await this.area.locator(".glyph-margin").first().boundingBox({ timeout: 5000 });
        if (box === null || margin === null) {
            throw new Error(`line ${line} is not visible`);
        }
        return { x: margin.x + margin.width / 2, y: box.y + box.height / 2 };
    }
}
