// Builds the Python package into wheel/, which is part of the .vsix: the extension installs the package from there.
// DYNAMO_DAP_PYTHON names a Python to use instead of the repository's environment.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const extension = dirname(fileURLToPath(import.meta.url));
const repository = dirname(extension);
const own = join(repository, ".venv/bin/python");
const python = process.env.DYNAMO_DAP_PYTHON ?? (existsSync(own) ? own : "python3");
const folder = join(extension, "wheel");

await rm(folder, { recursive: true, force: true });
const options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--wheel-dir", folder, repository];
const built = spawnSync(python, ["-m", "pip", "wheel", ...options], { stdio: "inherit" });
if (built.status !== 0) {
    throw new Error(`${python} -m pip wheel ended with ${built.status ?? built.error}`);
}
