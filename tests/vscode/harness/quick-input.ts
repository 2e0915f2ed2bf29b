/** VS Code's quick input: the box at the top that finds files, runs commands and goes to lines. */

import { expect, type Locator, type Page } from "@playwright/test";

export class QuickInput {
    constructor(private readonly page: Page) {}

    /** Opens the file with a name or path. */
    async openFile(path: string): Promise<void> {
        await this.accept(path, path.split("/").at(-1));
    }

    /** Runs a command by its name in the command palette. The command may open the quick input again. */
    async runCommand(name: string): Promise<void> {
        await this.accept(`>${name}`, name);
    }

    /** Types a text, accepts nothing, and returns the entries. */
    async search(text: string): Promise<Locator> {
        await this.page.keyboard.press("Escape");
        await this.page.keyboard.press("Control+P");
        await this.input.fill(text, { timeout: 3000 });
        return this.entries;
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

    /** Answers a question of a command. */
    async answer(text: string): Promise<void> {
        await expect(this.input, "the quick input asks").toBeVisible();
        await this.input.fill(text);
        await this.input.press("Enter");
        await expect(this.input).toBeHidden();
    }

    /** Answers that one of several questions that has this title. */
    async answerOneOf(title: string, text: string): Promise<void> {
        await expect(this.page.locator(".quick-input-title", { hasText: title })).toBeVisible();
        await this.input.fill(text);
        await this.input.press("Enter");
    }

    /**
     * Answers the dialog of "Save As". The dialog first shows the folder. After reading the folder, it replaces typed
     * text by its proposal, so wait for the proposal, which ends with a file name.
     */
    async saveAs(path: string): Promise<void> {
        await expect(this.input, "the dialog proposes a name").toHaveValue(/^\/.*[^/]$/, { timeout: 60_000 });
        await this.input.fill(path);
        await this.input.press("Enter");
        await expect(this.input).toBeHidden();
    }

    /**
     * Types a text, waits until the first entry contains `offered`, and accepts the entry. Repeats all of this, because
     * a key is lost while the focus moves, and a late move of the focus closes the box.
     */
    private async accept(text: string, offered: string | undefined): Promise<void> {
        await expect(async () => {
            await this.page.keyboard.press("Escape");
            await this.page.keyboard.press("Control+P");
            await expect(this.input, "the quick input opens").toBeVisible({ timeout: 3000 });
            await this.input.fill(text, { timeout: 3000 });
            if (offered !== undefined) {
                await expect(this.entries.first(), `the quick input offers ${offered}`).toContainText(offered, { timeout: 5000 });
            }
            await this.input.press("Enter", { timeout: 3000 });
        }, `the quick input takes ${text}`).toPass();
    }

    private get input(): Locator {
        return this.page.locator(".quick-input-widget input").first();
    }

    private get entries(): Locator {
        return this.page.locator(".quick-input-list .monaco-list-row");
    }
}
