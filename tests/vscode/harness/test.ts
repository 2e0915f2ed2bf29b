/**
 * The test function of the end-to-end tests. One VS Code and one browser run for all tests. Each test gets a copy of
 * the fixtures in a new folder, for which VS Code remembers no editors, breakpoints or watches of other tests. A
 * failing test leaves a screenshot, and the logs of VS Code, its extensions and the debug sessions.
 */

import { expect, test as base, type Page, type TestInfo } from "@playwright/test";
import { mkdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { chromium, CHROMIUM_ARGUMENTS } from "./chromium.js";
import { codeServer, OLDEST, type VSCodeVersion } from "./code-server.js";
import { packagedExtension, packageOther } from "./extension.js";
import { forkingPython } from "./forking-python.js";
import { clearSessionLog, copyLogs } from "./logs.js";
import { cache, output, runs } from "./places.js";
import { makesScenes, Server, theme, type Profile } from "./server.js";
import { OPEN_DIALOG } from "./summary-reporter.js";
import { Workbench } from "./workbench.js";
import { Workspace } from "./workspace.js";

export interface PerWorker {
    version: VSCodeVersion;
    profile: Profile;
    /** Folders of extensions to install in addition to the project's own. */
    otherExtensions: string[];
    /** Settings of the machine. */
    settings: Record<string, unknown>;
    /** The zoom factor of the window. */
    scale: number;
    server: Server;
    window: Page;
}

type TakePicture = (name: string) => Promise<void>;

type Shoot = (caption: string, seconds?: number) => Promise<void>;

interface PerTest {
    workspace: Workspace;
    vscode: Workbench;
    /** Takes a named screenshot. */
    picture: TakePicture;
    /** Takes one frame of an animation: a screenshot with a caption, shown for some seconds. */
    shoot: Shoot;
}

const START_MILLISECONDS = 5 * 60_000;
const VIEWPORT = { width: 1440, height: 900 };

export const test = base.extend<PerTest, PerWorker>({
    launchOptions: [
        async ({}, use): Promise<void> => {
            await use({ executablePath: await chromium(), args: CHROMIUM_ARGUMENTS });
        },
        { scope: "worker" },
    ],
    otherExtensions: [[], { scope: "worker", option: true }],
    settings: [{ "dynamo.python": forkingPython() }, { scope: "worker", option: true }],
    scale: [1, { scope: "worker", option: true }],
    version: [OLDEST, { scope: "worker", option: true }],
    profile: ["quiet", { scope: "worker", option: true }],
    server: [
        async ({ otherExtensions, settings, version, profile }, use, { parallelIndex }): Promise<void> => {
            await rm(join(runs, `workspaces-${parallelIndex}`), { recursive: true, force: true });
            const server = await Server.start({
                installation: await codeServer(cache, version),
                profile,
                folder: join(runs, `run-${parallelIndex}`),
                extensions: [packagedExtension, ...(await Promise.all(otherExtensions.map(packageOther)))],
                settings,
            });
            await use(server);
            await server.stop();
        },
        { scope: "worker", timeout: START_MILLISECONDS },
    ],
    window: [
        async ({ browser, scale }, use): Promise<void> => {
            const viewport = { width: VIEWPORT.width / scale, height: VIEWPORT.height / scale };
            const context = await browser.newContext({ viewport, deviceScaleFactor: scale, reducedMotion: "reduce" });
            await context.addInitScript(stopProgressBars);
            await use(await context.newPage());
            await context.close();
        },
        { scope: "worker" },
    ],
    workspace: async ({}, use, info) => {
        const [scene, pictured] = [sceneOf(info), /^picture ([\w-]+):/.exec(info.title)?.[1]];
        const folder = join(runs, `workspaces-${info.parallelIndex}`, `${info.testId}-${info.retry}`, "fixtures");
        // Use a readable path if pictures show it.
        const readable = scene !== undefined ? join("scenes", scene) : pictured && join("pictures", pictured);
        await use(await Workspace.make(readable ? join(tmpdir(), readable) : folder));
    },
    vscode: async ({ window, server, workspace }, use, info) => {
        const workbench = new Workbench(window);
        await clearSessionLog(server.folder);
        await workbench.open(server.address(workspace.folder));
        await use(workbench);
        if (info.status !== info.expectedStatus) {
            await keepScreenshot(window, info);
            await copyLogs(server.folder, info.outputPath("logs"));
        }
        // Leaving the window ends its debug sessions.
        await window.goto("about:blank");
    },
    picture: async ({ window }, use) => {
        await mkdir(output, { recursive: true });
        const take: TakePicture = async (name) => {
            // Pictures must not show short flashes.
            await window.screenshot({ path: join(output, `${name}.png`), animations: "disabled" });
        };
        await use(take);
    },
    shoot: async ({ window, scale }, use, info) => {
        let frames = 0;
        const folder = join(output, "scenes", theme, sceneOf(info) ?? "");
        const shoot: Shoot = async (caption, seconds = 2.5) => {
            if (!makesScenes) return;
            if (frames === 0) {
                await rm(folder, { recursive: true, force: true });
                await mkdir(folder, { recursive: true });
            }
            frames += 1;
            await expect(window.getByText("Load More Stack Frames"), "the whole stack is there").toHaveCount(0);
            await window.mouse.move(VIEWPORT.width / scale - 5, VIEWPORT.height / scale - 5);
            await expect(window.locator(".workbench-hover"), "no button is described").toHaveCount(0);
            await window.evaluate(showCaption, caption);
            const name = `${String(frames).padStart(2, "0")}-${seconds * 1000}.png`;
            await window.screenshot({ path: join(folder, name), animations: "disabled", caret: "hide" });
            await window.evaluate(() => document.querySelector("#caption")?.remove());
        };
        await use(shoot);
    },
});

/** The name of a test's animation, from its title "scene NAME: …". */
function sceneOf(info: TestInfo): string | undefined {
    return /^scene ([\w-]+):/.exec(info.title)?.[1];
}

/** Runs in the window. Without a GPU, painting progress bars would slow the debugged program down. */
function stopProgressBars(): void {
    document.addEventListener("DOMContentLoaded", () => {
        const style = document.createElement("style");
        style.textContent = ".progress-bit { animation: none !important; }";
        document.head.append(style);
    });
}

/** Runs in the window. */
function showCaption(text: string): void {
    const caption = document.createElement("div");
    caption.id = "caption";
    caption.textContent = text;
    Object.assign(caption.style, {
        position: "fixed",
        zIndex: "100000",
        left: "calc(50% + 230px)",
        bottom: "36px",
        transform: "translateX(-50%)",
        padding: "9px 18px",
        borderRadius: "8px",
        background: "#0b5cad",
        color: "#ffffff",
        font: "600 16px DejaVu Sans, sans-serif",
        whiteSpace: "nowrap",
    });
    document.body.append(caption);
}

async function keepScreenshot(window: Page, info: TestInfo): Promise<void> {
    const path = info.outputPath("failure.png");
    await window.screenshot({ path });
    await info.attach("the window when the test failed", { path, contentType: "image/png" });
    for (const body of await window.locator(".monaco-dialog-box").allInnerTexts()) {
        await info.attach(OPEN_DIALOG, { body, contentType: "text/plain" });
    }
}

export { expect } from "@playwright/test";
