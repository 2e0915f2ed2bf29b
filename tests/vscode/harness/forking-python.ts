/** A Python that forks the programs under test, because importing torch takes seconds. The Python tests use it, too. */

import { spawn } from "node:child_process";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";

import { run } from "./commands.js";
import { repository, runs } from "./places.js";
import { python } from "./python.js";
import { environment } from "./server.js";

const VARIABLE = "DYNAMO_DAP_FORKING_PYTHON";

/** The path of the forking Python. */
export function forkingPython(): string {
    return process.env[VARIABLE] ?? python();
}

/** Starts the forking Python for the programs of the first worker, and returns a function that ends it. */
export async function startForkingPython(): Promise<() => void> {
    const variables = environment(join(runs, "run-0"));
    await mkdir(variables.TMPDIR, { recursive: true });
    const words = Object.entries(variables).map(([name, value]) => `${name}=${value}`);
    const child = spawn(python(), ["-m", "tests.client.forking_python", ...words], { cwd: repository, stdio: ["pipe", "pipe", "inherit"] });
    process.env[VARIABLE] = await new Promise<string>((done, fail) => {
        child.stdout.once("data", (line: Buffer) => { done(line.toString().trim()); });
        child.once("exit", (code) => { fail(new Error(`tests.client.forking_python ended with ${String(code)}`)); });
    });
    // This returns when the forking Python has imported torch.
    await run(forkingPython(), ["-c", ""], { cwd: repository });
    return () => { child.stdin.end(); };
}
