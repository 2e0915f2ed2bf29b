/** All paths that the harness reads and writes. */

import { fileURLToPath } from "node:url";
import { join, resolve } from "node:path";

/** The root of the repository. */
export const repository = resolve(fileURLToPath(import.meta.url), "../../../..");

/** Downloads (VS Code); safe to delete. */
export const cache = resolve(process.env.DYNAMO_DAP_VSCODE_CACHE ?? join(repository, ".vscode-test"));

/** The folders of running servers and their workspaces. Parallel runs need separate folders. */
export const runs = resolve(process.env.DYNAMO_DAP_VSCODE_RUNS ?? cache);

/** Screenshots, traces and logs of the tests. */
export const output = join(repository, "tests", "output", "vscode");

/** The small torch programs for tests, demo and documentation. */
export const fixtures = join(repository, "fixtures");

/** Places in programs without markers, which users also read. */
export const placesFile = join(repository, "tests", "places.json");

export const extensionRoot = join(repository, "vscode-extension");

/** An extension that replaces the Python extension, and reports the interpreter that the user chose. */
export const standInPython = join(repository, "tests", "vscode", "stand-in-python");
