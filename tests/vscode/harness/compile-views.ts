/** The views in the side bar "torch.compile". */

import { expect, type Locator, type Page } from "@playwright/test";

import { scrollTo } from "./scrolling.js";
import { openSideBar } from "./side-bar.js";

const VIEWS = ["Findings", "Compiles", "Graph", "Guards", "Cache", "Timeline", "Compare"] as const;

type CompileView = (typeof VIEWS)[number];

export class CompileViews {
    constructor(private readonly page: Page) {}

    /** The first row of a view that contains a text. */
    row(view: CompileView, text: string): Locator {
        return this.pane(view).locator(".monaco-list-row", { hasText: text }).first();
    }

    /** The title and the description of a view. */
    title(view: CompileView): Locator {
        return this.page.locator(".pane-header", { has: this.page.locator("h3.title", { hasText: new RegExp(`^${view}$`) }) });
    }

    /** The part of a view below its title. */
    body(view: CompileView): Locator {
        return this.pane(view).locator(".pane-body");
    }

    /** Opens the side bar, expands the given views and collapses the others. */
    async show(...views: CompileView[]): Promise<void> {
        await openSideBar(this.page, /^torch\.compile/, this.title("Findings"));
        const [opened, folded] = [views, VIEWS.filter((view) => !views.includes(view))];
        for (const [list, open] of [[folded, false], [opened, true]] as const) {
            for (const view of list) {
                const header = this.title(view);
                if ((await header.getAttribute("aria-expanded")) !== String(open)) {
                    await header.click({ position: { x: 40, y: 10 } });
                }
                await expect(header).toHaveAttribute("aria-expanded", String(open));
            }
        }
    }

    /** Scrolls a view until a row with the text is shown, and returns it. */
    async reveal(view: CompileView, text: string): Promise<Locator> {
        return scrollTo(this.row(view, text), this.pane(view).locator(".monaco-list").first(), text);
    }

    /** Expands a collapsed row. */
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
