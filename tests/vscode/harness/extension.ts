/** Builds and packages the extension, once per run. */

import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { basename, join } from "node:path";

import { run } from "./commands.js";
import { cache, extensionRoot } from "./places.js";

/** The tested .vsix: `DYNAMO_DAP_VSIX`, for example a released one, else the file that `packageExtension` writes. */
export const packagedExtension = process.env.DYNAMO_DAP_VSIX ?? join(cache, "dynamo-dap.vsix");

/** Builds the .vsix unless one is given, and returns its path. */
export async function packageExtension(): Promise<string> {
    if (process.env.DYNAMO_DAP_VSIX !== undefined) {
        return packagedExtension;
    }
    if (!existsSync(join(extensionRoot, "node_modules/.package-lock.json"))) {
        await run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: extensionRoot });
    }
    await mkdir(cache, { recursive: true });
    await run("npm", ["run", "--silent", "package", "--", "--out", packagedExtension], { cwd: extensionRoot });
    return packagedExtension;
}

/** Makes the .vsix of an extension in plain JavaScript and returns its path. */
export async function packageOther(folder: string): Promise<string> {
    const path = join(cache, `${basename(folder)}.vsix`);
    const options = ["--no-dependencies", "--allow-missing-repository", "--skip-license", "--out", path];
    await run(join(extensionRoot, "node_modules/.bin/vsce"), ["package", ...options], { cwd: folder });
    return path;
}
