/**
 * `make vscode`: opens a real VS Code with the extension on a copy of the fixtures. Uses an installed `code`, else
 * starts code-server from npm and prints its address; Ctrl+C ends it.
 */

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { codeServer } from "./code-server.js";
import { findExecutable, run } from "./commands.js";
import { packageExtension } from "./extension.js";
import { cache } from "./places.js";
import { python } from "./python.js";
import { Server } from "./server.js";
import { Workspace } from "./workspace.js";

const FOLDER = join(cache, "open");
/** The settings of a user, with inlay hints, which tests turn off. */
const settings = { "dynamo.python": python(), "dynamo.inlayHints": true };

async function openInstalled(code: string, vsix: string, workspace: Workspace): Promise<void> {
    await writeFile(join(workspace.folder, ".vscode/settings.json"), JSON.stringify(settings, null, 4));
    const profile = ["--user-data-dir", join(FOLDER, "user"), "--extensions-dir", join(FOLDER, "extensions")];
    await mkdir(FOLDER, { recursive: true });
    await run(code, [...profile, "--install-extension", vsix]);
    await run(code, [...profile, "--disable-workspace-trust", workspace.folder, join(workspace.folder, "basic.py")]);
    console.log(`VS Code is open on ${workspace.folder}: press F5.`);
}

async function openInBrowser(vsix: string, workspace: Workspace): Promise<void> {
    const port = process.env.PORT === undefined ? undefined : Number(process.env.PORT);
    const options = { installation: await codeServer(cache), folder: FOLDER, extensions: [vsix], settings };
    const server = await Server.start(port === undefined ? options : { ...options, port });
    const stop = (): void => void server.stop();
    process.on("SIGINT", stop);
    process.on("SIGTERM", stop);
    console.log(`VS Code runs at ${server.address(workspace.folder)}`);
    console.log("Open basic.py, click left of a line number inside compute, and press F5. Ctrl+C here ends it.");
    await server.untilEnd();
}

const vsix = await packageExtension();
const workspace = await Workspace.make(join(cache, "open-workspace", "fixtures"));
const code = process.env.VSCODE === "code-server" ? undefined : findExecutable("code");
await (code === undefined ? openInBrowser(vsix, workspace) : openInstalled(code, vsix, workspace));
