/**
 * Shows the sessions of an assistant as ordinary ones: the server that it debugs by asks at a local socket, which only
 * this user reaches, and is itself the adapter of the session that is started then.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as vscode from "vscode";

import { DEBUG_TYPE, type DynamoConfiguration } from "../configuration/options.js";

const VARIABLE = "DYNAMO_DAP_EDITOR";
/** Paths of sockets have some hundred characters at most. */
const LONGEST_FOLDER = 70;
const MAXIMUM_CHARACTERS = 10_000;

/** What a server asks. */
interface ShownSession {
    request: string;
    name: string;
    /** The socket where the server speaks DAP. */
    adapter: string;
}

/** Where servers ask, for as long as the window is open. */
export class AssistantSessions implements vscode.Disposable {
    private readonly folder = mkdtempSync(join(tmpdir().length < LONGEST_FOLDER ? tmpdir() : "/tmp", "dynamo-dap-"));
    private readonly address = join(this.folder, "editor");
    private readonly server: Server = createServer((socket) => { serve(socket); });

    /** Assistants that are started in a terminal of the window find it by the variables of the terminal. */
    constructor(terminals: vscode.EnvironmentVariableCollection) {
        this.server.on("error", () => { this.server.close(); });
        this.server.listen(this.address);
        terminals.persistent = false;
        terminals.description = vscode.l10n.t("Shows the debug sessions that an assistant starts with dynamo-dap.");
        terminals.replace(VARIABLE, this.address);
    }

    /** What the process of a server needs in its environment. */
    get environment(): Record<string, string> {
        return { [VARIABLE]: this.address };
    }

    dispose(): void {
        this.server.close();
        rmSync(this.folder, { recursive: true, force: true });
    }
}

function serve(socket: Socket): void {
    let line = "";
    socket.setEncoding("utf8");
    // The server hangs up as soon as the session has reached it.
    socket.on("error", () => { socket.destroy(); });
    socket.on("data", (text: string) => {
        line += text;
        if (line.endsWith("\n")) {
            void problemOf(line).then((problem) => {
                socket.end(problem === undefined ? "" : `${JSON.stringify({ problem })}\n`);
            });
        } else if (line.length > MAXIMUM_CHARACTERS) {
            socket.destroy();
        }
    });
}

/** Starts the session that a line asks for; returns what went wrong. */
async function problemOf(line: string): Promise<string | undefined> {
    try {
        const { request, name, adapter } = JSON.parse(line) as ShownSession;
        const configuration: DynamoConfiguration = { type: DEBUG_TYPE, request, name, __adapter: adapter };
        const folder = vscode.workspace.workspaceFolders?.[0];
        // The program is what is on the disk: nobody here has asked to save anything.
        const started = await vscode.debug.startDebugging(folder, configuration, { suppressSaveBeforeStart: true });
        return started ? undefined : "the editor did not start the session";
    } catch (error) {
        return error instanceof Error ? error.message : String(error);
    }
}
