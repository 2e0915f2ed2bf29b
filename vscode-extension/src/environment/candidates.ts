/** Finds Python interpreters without the Python extension, and says what is installed in each. */

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, realpath } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import * as vscode from "vscode";

/** An interpreter with the versions that matter; undefined where the package is not installed. */
export interface Candidate {
    path: string;
    version: string;
    torch?: string;
    debugger?: string;
}

const NAMES = process.platform === "win32" ? ["Scripts/python.exe"] : ["bin/python", "bin/python3"];
const ON_PATH = process.platform === "win32" ? ["python.exe"] : ["python3", "python"];
const FOLDERS = [".venv", "venv", "env", ".conda"];
const COLLECTIONS = [".pyenv/versions", "miniconda3/envs", "anaconda3/envs", "miniforge3/envs", ".virtualenvs"];
const MILLISECONDS = 10_000;

/** Reads only metadata and imports nothing, so that it also finds a broken torch. */
const INSPECT = `
import json, sys
from importlib import metadata
def version(name):
    try:
        return metadata.version(name)
    except Exception:
        return None
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "torch": version("torch"), "debugger": version("dynamo-dap")}))
`;

/** Returns the interpreters in `folder` (a workspace folder), the active conda environment and on the PATH, in this order. */
export function nearby(folder: string | undefined): string[] {
    const environments = folder === undefined ? [] : FOLDERS.map((name) => join(folder, name));
    const conda = process.env.CONDA_PREFIX;
    const inEnvironments = [...environments, ...(conda === undefined ? [] : [conda])].flatMap(pythonIn);
    const onPath = (process.env.PATH ?? "").split(delimiter).flatMap((each) => ON_PATH.map((name) => join(each, name)));
    return [...inEnvironments, ...onPath].filter((path) => existsSync(path));
}

/** Returns all interpreters, each once and with its versions; those with torch come first. */
export async function allCandidates(folder: string | undefined): Promise<Candidate[]> {
    const collected = await Promise.all(COLLECTIONS.map((each) => environmentsIn(join(homedir(), each))));
    const paths = new Map<string, string>();
    for (const path of [...nearby(folder), ...collected.flat().flatMap(pythonIn)]) {
        // In an environment, "python" is a link to a file elsewhere, so the folder identifies the environment.
        const key = join(await realpath(join(path, "..")).catch(() => path), path.split(/[\\/]/).at(-1)?.replace(/3$/, "") ?? "");
        if (!paths.has(key)) {
            paths.set(key, path);
        }
    }
    const inspected = await Promise.all([...paths.values()].map(inspect));
    const found = inspected.filter((each) => each !== undefined);
    return found.sort((one, other) => Number(other.torch !== undefined) - Number(one.torch !== undefined));
}

/** Returns the versions of an interpreter; undefined if it cannot be run. */
export function inspect(path: string): Promise<Candidate | undefined> {
    return new Promise((done) => {
        execFile(path, ["-c", INSPECT], { timeout: MILLISECONDS, encoding: "utf8" }, (error, stdout) => {
            if (error !== null) {
                done(undefined);
                return;
            }
            const { version, torch, debugger: installed } = JSON.parse(stdout) as Record<string, string | null>;
            done({ path, version: version ?? "", ...(torch ? { torch } : {}), ...(installed ? { debugger: installed } : {}) });
        });
    });
}

/** Describes an interpreter for the user's choice: "Python 3.11.7, torch 2.13.0, dynamo-dap missing". */
export function described(candidate: Candidate): string {
    const { version, torch, debugger: installed } = candidate;
    return vscode.l10n.t("Python {0}, torch {1}, dynamo-dap {2}", version, torch ?? vscode.l10n.t("missing"), installed ?? vscode.l10n.t("missing"));
}

function pythonIn(environment: string): string[] {
    const found = NAMES.map((name) => join(environment, name)).find((path) => existsSync(path));
    return found === undefined ? [] : [found];
}

async function environmentsIn(folder: string): Promise<string[]> {
    const names = await readdir(folder).catch(() => []);
    return names.map((name) => join(folder, name));
}
