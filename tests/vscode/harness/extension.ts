/** Builds and packages the extension, once per run. */

import { existsSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { run } from "./commands.js";
import { cache, extensionRoot } from "./places.js";

/** Returns the path of a freshly packaged .vsix. */
export async function packagedExtension(): Promise<string> {
    if (!existsSync(join(extensionRoot, "node_modules/.package-lock.json"))) {
        await run("npm", ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: extensionRoot });
    }
    await mkdir(cache, { recursive: true });
    const vsix = join(cache, "dynamo-dap.vsix");
    await run("npm", ["run", "--silent", "package", "--", "--out", vsix], { cwd: extensionRoot });
    return vsix;
}
