/** A user with an empty profile: counts gestures, and takes pictures in small and large windows. */

import type { Locator } from "@playwright/test";
import { symlink } from "node:fs/promises";
import { dirname, join } from "node:path";

import { Gestures } from "./gestures.js";
import { python } from "./python.js";
import { expect, test as base } from "./test.js";

const SIZES = [
    { width: 1920, height: 1080 },
    { width: 1440, height: 900 },
];
const THEMES = { "Default Light Modern": "vs", "Default Dark Modern": "vs-dark" };

/** A typical workspace of a user: programs, an environment with torch, and nothing else. */
export const test = base.extend<{ gestures: Gestures; pictures: (name: string, answer: Locator) => Promise<void> }>({
    gestures: async ({ vscode, workspace }, use) => {
        await expect(vscode.page.locator(".monaco-workbench")).toBeVisible();
        await workspace.remove(".vscode/launch.json");
        await symlink(dirname(dirname(python())), join(workspace.folder, ".venv"));
        const gestures = new Gestures();
        await use(gestures);
        gestures.expectFew();
    },
    // Both sizes, light and dark: each picture must show the answer.
    pictures: async ({ vscode, workspace, picture }, use, { project }) => {
        await use(async (name, answer) => {
            for (const [theme, kind] of Object.entries(THEMES)) {
                await workspace.write(".vscode/settings.json", JSON.stringify({ "workbench.colorTheme": theme }));
                await expect(vscode.page.locator(`.monaco-workbench.${kind}`)).toBeVisible();
                for (const size of SIZES) {
                    await vscode.page.setViewportSize(size);
                    await expect(answer).toBeInViewport();
                    await picture(`task-${name}-${project.name}-${kind}-${size.width}`);
                }
            }
        });
    },
});
