/** The torch.compile views in the Run and Debug side bar, as a person reads them. */

import { expect, type Locator, type Page } from "@playwright/test";

import { scrollTo } from "./scrolling.js";

type CompileView = "Compiles" | "Graph" | "Guards" | "Cache" | "Compare" | "Timeline";

export class CompileViews {
    constructor(private readonly page: Page) {}

    /** The first row of a view that has a text. */
    row(view: CompileView, text: string): Locator {
        return this.pane(view).locator(".monaco-list-row", { hasText: text }).first();
    }

    /** The title of a view, with what it is about. */
    title(view: CompileView): Locator {
        return this.page.locator(".pane-header", { hasText: `torch.compile: ${view}` });
    }

    /** Scrolls a view until a row with the text is shown, and returns it. */
    async reveal(view: CompileView, text: string): Promise<Locator> {
        return scrollTo(this.row(view, text), this.pane(view).locator(".monaco-list").first(), text);
    }

    /** Opens a row that is closed. */
    async open(view: CompileView, text: string): Promise<void> {
        const row = await this.reveal(view, text);
        if ((await row.getAttribute("aria-expanded")) === "false") {
            await row.locator(".monaco-tl-twistie").click();
        }
        await expect(row).toHaveAttribute("aria-expanded", "true");
    }

    private pane(view: CompileView): Locator {
        return this.page.locator(".pane", { has: this.title(view) });
    }
}
