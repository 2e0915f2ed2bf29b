/** Runs programs until they end. Their output goes to a file, or into the error. */

import { spawn } from "node:child_process";
import { existsSync, openSync } from "node:fs";
import { delimiter, join } from "node:path";

export interface CommandOptions {
    cwd?: string;
    env?: NodeJS.ProcessEnv;
    /** The file for all output. Without it, the error contains the end of the output. */
    logFile?: string;
}

/** Runs a command; rejects if it fails, with the command and its output in the error. */
export function run(command: string, args: string[], options: CommandOptions = {}): Promise<void> {
    const log = options.logFile === undefined ? "pipe" : openSync(options.logFile, "a");
    return new Promise((done, fail) => {
        const child = spawn(command, args, {
            cwd: options.cwd,
            env: { ...process.env, ...options.env },
            stdio: ["ignore", log, log],
        });
        let tail = "";
        const keep = (chunk: Buffer): void => {
            tail = (tail + chunk.toString()).slice(-4000);
        };
        child.stdout?.on("data", keep);
        child.stderr?.on("data", keep);
        child.on("error", fail);
        child.on("close", (code, signal) => {
            if (code === 0) {
                done();
                return;
            }
            const where = options.logFile === undefined ? tail : `see ${options.logFile}`;
            fail(new Error(`${command} ${args.join(" ")} ended with ${signal ?? String(code)}: ${where}`));
        });
    });
}

/** The first of `names` that is an executable on the PATH. */
export function findExecutable(...names: string[]): string | undefined {
    for (const name of names) {
        for (const folder of (process.env.PATH ?? "").split(delimiter)) {
            const candidate = join(folder, name);
            if (existsSync(candidate)) {
                return candidate;
            }
        }
    }
    return undefined;
}
