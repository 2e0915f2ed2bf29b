/**
 * VS Code's window in the browser: opens files and runs commands as a user does. Every wait has a time limit, and its
 * error says what it waited for.
 */

import { expect, type Locator, type Page } from "@playwright/test";

import { CompileViews } from "./compile-views.js";
import { DebugPanes } from "./debug-panes.js";
import { Editor } from "./editor.js";
import { QuickInput } from "./quick-input.js";
import { openSideBar } from "./side-bar.js";

const START_MILLISECONDS = 120_000;
const SIDE_BAR_PIXELS = 410;

export class Workbench {
    readonly compiles: CompileViews;
    readonly debug: DebugPanes;
    readonly editor: Editor;
    readonly quickInput: QuickInput;

    constructor(readonly page: Page) {
        this.compiles = new CompileViews(page);
        this.debug = new DebugPanes(page);
        this.editor = new Editor(page);
        this.quickInput = new QuickInput(page);
    }

    /** Opens the window and waits until its extensions have started. */
    async open(address: string): Promise<void> {
        await this.page.goto(address, { waitUntil: "domcontentloaded" });
        const explorer = this.page.locator(".explorer-folders-view .monaco-list-row").first();
        await expect(explorer, "the explorer shows the workspace").toBeVisible({ timeout: START_MILLISECONDS });
        await openSideBar(this.page, /^Run and Debug/, this.page.locator(".debug-viewlet"));
        await this.widenSideBar();
    }

    /** Widens the side bar, so that pictures show complete values. VS Code may remember the width. */
    private async widenSideBar(): Promise<void> {
        const box = await this.page.locator(".part.sidebar").boundingBox();
        if (box !== null && box.width < SIDE_BAR_PIXELS - 5) {
            const [edge, middle] = [box.x + box.width, box.y + box.height / 2];
            await this.page.mouse.move(edge, middle);
            await this.page.mouse.down();
            await this.page.mouse.move(box.x + SIDE_BAR_PIXELS, middle, { steps: 4 });
            await this.page.mouse.up();
            await this.page.mouse.move(edge + SIDE_BAR_PIXELS, middle);
        }
    }

    /** Opens a file of the workspace by its path. */
    async openFile(path: string): Promise<void> {
        const name = path.split("/").at(-1) ?? path;
        await expect(async () => {
            await this.quickInput.openFile(path);
            const tab = this.page.locator(".tab.active", { hasText: name });
            await expect(tab, `${path} opens`).toBeVisible({ timeout: 3000 });
        }).toPass();
        await expect(this.editor.area.locator(".view-line").first()).toBeVisible();
    }

    /** Runs a command by its name in the command palette. */
    async command(name: string): Promise<void> {
        await this.quickInput.runCommand(name);
    }

    /**
     * Presses F5 until debugging starts or a dialog opens. VS Code ignores the key before it knows the debugger. A
     * short program may have ended when this returns.
     */
    async startDebugging(dialog = this.page.locator(".monaco-dialog-box")): Promise<void> {
        await this.debug.noteStart();
        await expect(async () => {
            if (!(await this.debug.hasStarted())) {
                await this.page.keyboard.press("F5");
            }
            // A second F5 while VS Code is still starting would be one too many.
            // eslint-disable-next-line no-restricted-syntax
            await expect.poll(async () => (await this.debug.hasStarted()) || dialog.isVisible(), { timeout: 25_000 }).toBe(true);
        }, "debugging starts").toPass();
    }

    /** Waits for a dialog and returns it. */
    async dialog(): Promise<Locator> {
        const dialog = this.page.locator(".monaco-dialog-box");
        await expect(dialog, "a dialog opens").toBeVisible();
        return dialog;
    }
}
