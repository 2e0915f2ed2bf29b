/** The Python of debugger and programs: `DYNAMO_DAP_PYTHON`, else the project's environment, else the PATH's. */

import { existsSync } from "node:fs";
import { join } from "node:path";

import { findExecutable } from "./commands.js";
import { repository } from "./places.js";

export function python(): string {
    const own = join(repository, ".venv/bin/python");
    const found = process.env.DYNAMO_DAP_PYTHON ?? (existsSync(own) ? own : findExecutable("python3"));
    if (found === undefined) {
        throw new Error("No Python: run `make setup`, or name one in DYNAMO_DAP_PYTHON.");
    }
    return found;
}
