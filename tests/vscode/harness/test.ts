/**
 * The test function of the end-to-end tests: each test gets a fresh window on a fresh copy of the fixtures, in a VS Code
 * that runs for the whole file. A failing test leaves a screenshot and a trace.
 */

import { test as base } from "@playwright/test";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { codeServer } from "./code-server.js";
import { packagedExtension } from "./extension.js";
import { cache, output } from "./places.js";
import { python } from "./python.js";
import { Server } from "./server.js";
import { Workbench } from "./workbench.js";
import { Workspace } from "./workspace.js";

interface PerWorker {
    server: Server;
}

type TakePicture = (name: string) => Promise<void>;

interface PerTest {
    workspace: Workspace;
    vscode: Workbench;
    /** Takes a named screenshot of success. */
    picture: TakePicture;
}

const START_MILLISECONDS = 10 * 60_000;

export const test = base.extend<PerTest, PerWorker>({
    server: [
        async ({}, use, { parallelIndex }): Promise<void> => {
            const server = await Server.start({
                installation: await codeServer(cache),
                folder: join(cache, `run-${parallelIndex}`),
                vsix: await packagedExtension(),
                settings: { "dynamo.python": python() },
            });
            await use(server);
            await server.stop();
        },
        { scope: "worker", timeout: START_MILLISECONDS },
    ],
    workspace: async ({}, use, { parallelIndex }) => {
        await use(await Workspace.make(join(cache, `workspace-${parallelIndex}`, "fixtures")));
    },
    vscode: async ({ page, server, workspace }, use) => {
        const workbench = new Workbench(page);
        await workbench.open(server.address(workspace.folder));
        await use(workbench);
    },
    picture: async ({ page }, use) => {
        await mkdir(output, { recursive: true });
        const take: TakePicture = async (name) => {
            await page.screenshot({ path: join(output, `${name}.png`) });
        };
        await use(take);
    },
});

export { expect } from "@playwright/test";
