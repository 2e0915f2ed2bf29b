/** The Run and Debug view as a person reads it: call stack, variables, watches, breakpoints, the Debug Console. */

import { expect, type Locator, type Page } from "@playwright/test";

/** A stop may come after torch was imported and compiled something. */
const STOP_MILLISECONDS = 60_000;

export class DebugPanes {
    constructor(private readonly page: Page) {}

    /** Rows of a pane: `call-stack`, `variables`, `watch`, `breakpoints`. */
    rows(pane: "call-stack" | "variables" | "watch" | "breakpoints"): Locator {
        const container = pane === "watch" ? ".debug-watch" : `.debug-${pane}`;
        return this.page.locator(`${container} .monaco-list-row`);
    }

    /** The first row of a pane that has all of the texts. */
    row(pane: "call-stack" | "variables" | "watch" | "breakpoints", ...texts: string[]): Locator {
        return texts.reduce((rows, text) => rows.filter({ hasText: text }), this.rows(pane)).first();
    }

    /** Waits until a frame is shown in the editor, and returns the call stack, a text per frame. */
    async waitForStop(what: string): Promise<string[]> {
        const pointer = this.page.locator(".codicon-debug-stackframe, .codicon-debug-stackframe-focused");
        await expect(pointer.first(), `the program stops: ${what}`).toBeVisible({ timeout: STOP_MILLISECONDS });
        await expect(this.rows("call-stack").first()).toBeVisible();
        return this.texts("call-stack");
    }

    /** Waits until the debug toolbar is gone: the session is over. */
    async waitForEnd(): Promise<void> {
        const stop = this.page.locator(".debug-toolbar, .debug-viewlet .codicon-debug-stop");
        await expect(stop, "the session ends").toHaveCount(0, { timeout: STOP_MILLISECONDS });
    }

    /** The texts of a pane's rows, blanks made one. */
    async texts(pane: "call-stack" | "variables" | "watch" | "breakpoints"): Promise<string[]> {
        return (await this.rows(pane).allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim());
    }

    /** Opens a row of the Variables pane that is closed. */
    async expand(...texts: string[]): Promise<void> {
        const row = this.row("variables", ...texts);
        await expect(row, `the variable ${texts.join(" ")}`).toBeVisible();
        if ((await row.getAttribute("aria-expanded")) === "false") {
            await row.locator(".monaco-tl-twistie").click();
            await expect(row).toHaveAttribute("aria-expanded", "true");
        }
    }

    /** Adds a watch expression. */
    async watch(expression: string): Promise<Locator> {
        const header = this.page.locator(".pane-header", { hasText: "Watch" });
        if ((await header.getAttribute("aria-expanded")) === "false") {
            await header.click();
        }
        await header.hover();
        await this.page.locator(".pane-header", { hasText: "Watch" }).getByRole("button", { name: "Add Expression" }).click();
        const input = this.page.locator(".debug-watch input, .debug-watch textarea").first();
        await input.fill(expression);
        await input.press("Enter");
        return this.row("watch", expression);
    }

    /** Evaluates in the Debug Console and returns the console's rows. */
    async evaluate(expression: string): Promise<Locator> {
        const input = await this.console();
        await input.click();
        await this.page.keyboard.type(expression);
        await this.page.keyboard.press("Escape");
        await this.page.keyboard.press("Enter");
        return this.consoleRows();
    }

    /** Rows of the Debug Console. */
    consoleRows(): Locator {
        return this.page.locator(".repl .monaco-list-row");
    }

    /** Opens the Debug Console and returns its input. */
    async console(): Promise<Locator> {
        const input = this.page.locator(".repl-input-wrapper .monaco-editor");
        if (!(await input.isVisible())) {
            await this.page.keyboard.press("Control+Shift+Y");
        }
        await expect(input, "the Debug Console opens").toBeVisible();
        return input;
    }
}
