/** VS Code's quick input: the box at the top that finds files, runs commands and goes to lines. */

import { expect, type Locator, type Page } from "@playwright/test";

export class QuickInput {
    constructor(private readonly page: Page) {}

    /** Opens the file with a name or path. */
    async openFile(path: string): Promise<void> {
        await this.accept(path, path.split("/").at(-1));
    }

    /** Runs a command by the name that the command palette shows. The command may open the quick input again. */
    async runCommand(name: string): Promise<void> {
        await this.accept(`>${name}`, name);
    }

    /** Moves the cursor to a 1-based line. */
    async goToLine(line: number): Promise<void> {
        await this.accept(`:${line}`, undefined);
        await expect(this.input).toBeHidden();
    }

    /** Picks an entry of the open quick input. */
    async choose(entry: string): Promise<void> {
        const row = this.entries.filter({ hasText: entry }).first();
        await expect(row, `the quick input offers ${entry}`).toBeVisible();
        await row.click();
    }

    /** Types a text, waits until the first entry contains `offered`, and accepts it. */
    private async accept(text: string, offered: string | undefined): Promise<void> {
        await this.page.keyboard.press("Escape");
        await this.page.keyboard.press("Control+P");
        await expect(this.input, "the quick input opens").toBeVisible();
        await this.input.fill(text);
        if (offered !== undefined) {
            await expect(this.entries.first(), `the quick input offers ${offered}`).toContainText(offered);
        }
        await this.input.press("Enter");
    }

    private get input(): Locator {
        return this.page.locator(".quick-input-widget input").first();
    }

    private get entries(): Locator {
        return this.page.locator(".quick-input-list .monaco-list-row");
    }
}
