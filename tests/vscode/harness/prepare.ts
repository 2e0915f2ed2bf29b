/**
 * Runs once before all tests: installs VS Code if it is missing (this takes minutes, which count for no test's
 * deadline), packages the extension, and starts the forking Python. Returns a function that ends the forking Python.
 */

import { chromium } from "./chromium.js";
import { codeServer, NEWEST, OLDEST } from "./code-server.js";
import { packageExtension } from "./extension.js";
import { startForkingPython } from "./forking-python.js";
import { cache } from "./places.js";
import { python } from "./python.js";

const PROJECT = "--project=";

export default async function prepare(): Promise<() => void> {
    console.log(`Python: ${python()}`);
    console.log(`Browser: ${await chromium()}`);
    // The core tests need only one version, so do not install the other.
    const chosen = process.argv.filter((each) => each.startsWith(PROJECT)).map((each) => each.slice(PROJECT.length));
    for (const version of [OLDEST, NEWEST].filter((each) => chosen.length === 0 || chosen.includes(each))) {
        const { entry } = await codeServer(cache, version);
        console.log(`VS Code ${version}: ${entry}`);
    }
    console.log(`Extension: ${await packageExtension()}`);
    return startForkingPython();
}
