/** The panes of debugging: call stack, variables, watches, breakpoints, the Debug Console. */

import { setTimeout as sleep } from "node:timers/promises";

import { expect, type Locator, type Page } from "@playwright/test";

import { pressKey } from "./debug-keys.js";
import { scrollTo } from "./scrolling.js";
import { openSideBar } from "./side-bar.js";
import { stackIfStopped } from "./stops.js";

/** The time limit for a stop: before it, the program may import torch and compile. */
const STOP_MILLISECONDS = 120_000;

/** The stop button. The toolbar is docked to the view's title. */
const STOP_BUTTON = ".part.sidebar .codicon-debug-stop, .part.sidebar .codicon-debug-disconnect";

type Pane = "call-stack" | "variables" | "watch" | "breakpoints";

export class DebugPanes {
    constructor(readonly page: Page) {}

    press = (key: Parameters<typeof pressKey>[1]): Promise<void> => pressKey(this.page, key);

    /** Rows of a pane: `call-stack`, `variables`, `watch`, `breakpoints`. */
    rows(pane: Pane): Locator {
        const container = pane === "watch" ? ".debug-watch" : `.debug-${pane}`;
        return this.page.locator(`${container} .monaco-list-row`);
    }

    /** The first row of a pane that contains all of the texts. */
    row(pane: Pane, ...texts: string[]): Locator {
        return texts.reduce((rows, text) => rows.filter({ hasText: text }), this.rows(pane)).first();
    }

    /** Opens the Run and Debug view, unless it is open. */
    async show(): Promise<void> {
        await openSideBar(this.page, /^Run and Debug/, this.page.locator(".debug-viewlet"));
    }

    /** Waits until the top frame's row reads like `top` ("name file line:column"), and returns the call stack. */
    async waitForStop(top: RegExp): Promise<string[]> {
        await this.show();
        const dialog = this.page.locator(".monaco-dialog-box");
        // Poll inside the page, because a message for each look would cost more than the look.
        const options = { polling: 100, timeout: STOP_MILLISECONDS };
        const found = await this.page.waitForFunction(stackIfStopped, [top.source, top.flags] as const, options).catch(() => undefined);
        const stack = await found?.jsonValue();
        if (Array.isArray(stack)) {
            return stack;
        }
        if (await dialog.isVisible()) {
            throw new Error(`expected a stop at ${top}, got a dialog: ${await dialog.innerText()}`);
        }
        const rows = JSON.stringify(await this.texts("call-stack"));
        const console = (await this.consoleRows().allInnerTexts()).join("\n");
        throw new Error(`expected a stop at ${top}, got the call stack ${rows} and the output ${console}`);
    }

    /** Begins to watch for the debug toolbar, even if it appears only briefly. */
    async noteStart(): Promise<void> {
        await this.page.evaluate((stop) => {
            const note = (): void => {
                if (document.querySelector(stop) !== null) {
                    document.body.dataset.debugged = "yes";
                    observer.disconnect();
                }
            };
            delete document.body.dataset.debugged;
            const observer = new MutationObserver(note);
            observer.observe(document.body, { childList: true, subtree: true });
            note();
        }, STOP_BUTTON);
    }

    /** Whether debugging has started since `noteStart`. */
    async hasStarted(): Promise<boolean> {
        return this.page.evaluate(() => document.body.dataset.debugged === "yes");
    }

    /** Waits until the started session has ended. */
    async waitForEnd(): Promise<void> {
        await this.show();
        const over = async (): Promise<boolean> => (await this.hasStarted()) && (await this.page.locator(STOP_BUTTON).count()) === 0;
        await expect.poll(over, { message: "the session ends", timeout: STOP_MILLISECONDS }).toBe(true);
    }

    /** The texts of a pane's rows, with runs of blanks as one blank. */
    async texts(pane: Pane): Promise<string[]> {
        return (await this.rows(pane).allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim());
    }

    /** The description of the stopped thread in the title of the Call Stack pane. */
    headline(): Locator {
        return this.page.locator(".call-stack-state-message .label");
    }

    /** Scrolls a pane until a row with all of the texts is shown, and returns the row. */
    async reveal(pane: Pane, ...texts: string[]): Promise<Locator> {
        await this.show();
        return scrollTo(this.row(pane, ...texts), this.page.locator(`.debug-${pane} .monaco-list`), texts.join(" "));
    }

    /** Expands a collapsed row of the Variables pane. */
    async expand(text: string): Promise<void> {
        await this.foldVariables(text, true);
    }

    /** The enabled entries in the menu of a row of the Variables pane. */
    async offers(text: string): Promise<string[]> {
        const entries = this.page.locator(".monaco-menu .action-item:not(.disabled) .action-label");
        const row = await this.reveal("variables", text);
        await expect(async () => {
            await row.click({ button: "right" });
            await expect(entries.filter({ hasText: "Copy Value" })).toBeVisible({ timeout: 2000 });
        }, `the menu of ${text} opens`).toPass();
        const texts = await entries.allInnerTexts();
        await this.page.keyboard.press("Escape");
        return texts;
    }

    /** Expands or collapses a row of the Variables pane. */
    async foldVariables(text: string, open: boolean): Promise<void> {
        await expect(async () => {
            const row = await this.reveal("variables", text);
            if ((await row.getAttribute("aria-expanded")) !== String(open)) {
                await row.locator(".monaco-tl-twistie").click();
                await expect(row).toHaveAttribute("aria-expanded", String(open), { timeout: 3000 });
                // VS Code rebuilds the pane 0.4 s after a stop, with the rows that were expanded before.
                await sleep(500);
                const later = await this.reveal("variables", text);
                await expect(later, "it stays so").toHaveAttribute("aria-expanded", String(open), { timeout: 1000 });
            }
        }, `${text} ${open ? "opens" : "closes"}`).toPass();
    }

    /** Expands or collapses a pane of the Run and Debug view by its title. */
    async foldPane(title: string, open: boolean): Promise<void> {
        await this.show();
        const header = this.page.locator(".pane-header", { hasText: title });
        if ((await header.getAttribute("aria-expanded")) !== String(open)) {
            await header.click({ position: { x: 40, y: 10 } });
        }
        await expect(header).toHaveAttribute("aria-expanded", String(open));
    }

    /** The row of the Disassembly view at which the program is stopped. */
    instructionRow(): Locator {
        const pointer = this.page.locator(".codicon-debug-stackframe, .codicon-debug-breakpoint-stackframe-dot");
        return this.page.locator(".disassembly-view .monaco-table-tr, .disassembly-view .monaco-list-row", { has: pointer }).first();
    }

    /** Adds a watch expression. */
    async watch(expression: string): Promise<Locator> {
        await this.foldPane("Watch", true);
        const header = this.page.locator(".pane-header", { hasText: "Watch" });
        await header.hover();
        await header.getByRole("button", { name: "Add Expression" }).click();
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
        if (!(await input.isVisible())) await this.page.keyboard.press("Control+Shift+Y");
        await expect(input, "the Debug Console opens").toBeVisible();
        return input;
    }
}

/** A pattern for a frame's row in the call stack. */
export function at(name: string, file: string, line: number): RegExp {
    return new RegExp(`^${escaped(name)} ${escaped(file)} ${line}:`);
}

/** A text as a regular expression that matches it. */
export function escaped(text: string): string {
    return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
