/** The focused editor: its text, its gutter with breakpoints, its hovers. Lines are 1-based. */

import { expect, type Locator, type Page } from "@playwright/test";

import { Gutter } from "./gutter.js";
import { QuickInput } from "./quick-input.js";

export class Editor {
    private readonly quickInput: QuickInput;
    private readonly gutter: Gutter;

    constructor(private readonly page: Page) {
        this.gutter = new Gutter(page, () => this.area);
        this.quickInput = new QuickInput(page);
    }

    /** Requests suggestions at the cursor until one contains a text, as a language server may start late. Returns all. */
    async suggest(text: string): Promise<Locator> {
        const suggestions = this.page.locator(".suggest-widget .monaco-list-row");
        await expect(async () => {
            await this.page.keyboard.press("Escape");
            await this.page.keyboard.press("Control+Space");
            await expect(suggestions.filter({ hasText: text }).first()).toBeVisible({ timeout: 3000 });
        }, `${text} is suggested`).toPass();
        return suggestions;
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

    /** The text of the line at which the program is stopped. */
    async currentLine(): Promise<string> {
        const pointer = await this.area.locator(".glyph-margin-widgets .codicon-debug-stackframe").first().boundingBox();
        return pointer === null ? "" : this.textAt(pointer.y + pointer.height / 2);
    }

    /** The text of one line, including inline values at its end. */
    async lineText(line: number): Promise<string> {
        const { y } = await this.gutter.spot(line);
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

    /** Moves the cursor to a line and waits for the line's number: the quick input may close without effect. */
    async goToLine(line: number): Promise<void> {
        const current = this.area.locator(".line-numbers.active-line-number");
        await expect(async () => {
            await this.quickInput.goToLine(line);
            await expect(current).toHaveText([String(line)], { timeout: 5000 });
        }, `the cursor is at line ${line}`).toPass();
    }

    /** Sets a breakpoint by its key, which cannot miss the line if a link over a function appears. */
    async setBreakpoint(line: number): Promise<void> {
        await this.goToLine(line);
        await this.gutter.pressBreakpoint(line);
    }

    /** Sets a breakpoint by a click; see `Gutter`. */
    async clickBreakpoint(line: number): Promise<void> {
        await this.goToLine(line);
        await this.gutter.clickBreakpoint(line);
    }

    /** Gives the breakpoint at a line a condition ("Expression"), a "Log Message", a "Hit Count" or a "Mode". */
    async editBreakpoint(line: number, kind: string, value: string): Promise<void> {
        await this.gutter.editBreakpoint(line, kind, value);
    }

    /** Rests the pointer on a word of a line and returns the debug hover. */
    async hover(line: number, word: string): Promise<Locator> {
        const hover = this.page.locator(".debug-hover-widget");
        await expect(async () => {
            // Find the position again each time: lenses and the mark of a stop appear late, and move the word.
            const spot = await this.spotOf(line, word);
            await this.page.mouse.move(spot.x, spot.y + 100);
            await this.page.mouse.move(spot.x, spot.y, { steps: 4 });
            await expect(hover).toBeVisible({ timeout: 3000 });
        }, `the debug hover of ${word} opens`).toPass();
        return hover;
    }

    /** The position of the middle of a word in the window. */
    private async spotOf(line: number, word: string): Promise<{ x: number; y: number }> {
        const { y } = await this.gutter.spot(line);
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
        return spot;
    }
}
