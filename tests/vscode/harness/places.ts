/** Where things lie: all paths that the harness reads and writes. */

import { fileURLToPath } from "node:url";
import { join, resolve } from "node:path";

/** The root of the repository. */
export const repository = resolve(fileURLToPath(import.meta.url), "../../../..");

/** Downloaded parts (VS Code); safe to delete. */
export const cache = resolve(process.env.DYNAMO_DAP_VSCODE_CACHE ?? join(repository, ".vscode-test"));

/** The folders of running servers and their workspaces; a run beside another one has its own. */
export const runs = resolve(process.env.DYNAMO_DAP_VSCODE_RUNS ?? cache);

/** Screenshots, traces and logs of the tests. */
export const output = join(repository, "tests", "output", "vscode");

/** The small torch programs that tests, demo and documentation share. */
export const fixtures = join(repository, "fixtures");

/** Places in programs that have no markers, to be read by people. */
export const placesFile = join(repository, "tests", "places.json");

export const extensionRoot = join(repository, "vscode-extension");

/** An extension in the place of Python's, which says what interpreter a user chose. */
export const standInPython = join(repository, "tests", "vscode", "stand-in-python");
