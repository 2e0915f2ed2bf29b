/**
 * Runs once before all tests: installs what is missing (the first time takes minutes, which no test's deadline counts),
 * and packages the extension.
 */

import { chromium } from "./chromium.js";
import { codeServer, NEWEST, OLDEST } from "./code-server.js";
import { packageExtension } from "./extension.js";
import { cache } from "./places.js";
import { python } from "./python.js";

export default async function prepare(): Promise<void> {
    console.log(`Python: ${python()}`);
    console.log(`Browser: ${await chromium()}`);
    for (const version of [OLDEST, NEWEST]) {
        const { entry } = await codeServer(cache, version);
        console.log(`VS Code ${version}: ${entry}`);
    }
    console.log(`Extension: ${await packageExtension()}`);
}
