/** What a server, its editors and their debug sessions write about themselves, in the server's folder. */

import { existsSync } from "node:fs";
import { cp, rm } from "node:fs/promises";
import { basename, join } from "node:path";

/** What code-server prints. */
export function serverLog(folder: string): string {
    return join(folder, "server.log");
}

/** Every message of every debug session: debug adapters and programs append to it. */
export function sessionLog(folder: string): string {
    return join(folder, "dap.log");
}

/** Forgets the messages of earlier sessions. */
export async function clearSessionLog(folder: string): Promise<void> {
    await rm(sessionLog(folder), { force: true });
}

/** Copies all logs: those of VS Code and its extensions, too. */
export async function copyLogs(folder: string, target: string): Promise<void> {
    for (const log of [serverLog(folder), sessionLog(folder), join(folder, "user/logs")]) {
        if (existsSync(log)) {
            await cp(log, join(target, basename(log)), { recursive: true });
        }
    }
}
