/**
 * Shows the debug sessions of an assistant as ordinary sessions. The assistant's server sends a request to a local
 * socket, which only this user can reach. VS Code then starts a session that uses this server as its debug adapter.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as vscode from "vscode";

import { DEBUG_TYPE, type DynamoConfiguration } from "../configuration/options.js";

const VARIABLE = "DYNAMO_DAP_EDITOR";
/** The path of a socket has at most about a hundred characters. */
const LONGEST_FOLDER = 70;
const MAXIMUM_CHARACTERS = 10_000;

/** A server's request to show its session. */
interface ShownSession {
    request: string;
    name: string;
    /** The socket where the server speaks DAP. */
    adapter: string;
}

/** Listens for requests of servers while the window is open. */
export class AssistantSessions implements vscode.Disposable {
    private readonly folder = mkdtempSync(join(tmpdir().length < LONGEST_FOLDER ? tmpdir() : "/tmp", "dynamo-dap-"));
    private readonly address = join(this.folder, "editor");
    private readonly server: Server = createServer((socket) => { serve(socket); });

    /** `terminals` are the variables of the window's terminals: assistants that start there find the socket by them. */
    constructor(terminals: vscode.EnvironmentVariableCollection) {
        this.server.on("error", () => { this.server.close(); });
        this.server.listen(this.address);
        terminals.persistent = false;
        terminals.description = vscode.l10n.t("Shows the debug sessions that an assistant starts with the torch.compile debugger.");
        terminals.replace(VARIABLE, this.address);
    }

    /** The environment variable that a server needs. */
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
    // The server closes this connection when the session has connected.
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

/** Starts the session that a line requests. Returns the problem, or undefined. */
async function problemOf(line: string): Promise<string | undefined> {
    try {
        const { request, name, adapter } = JSON.parse(line) as ShownSession;
        const configuration: DynamoConfiguration = { type: DEBUG_TYPE, request, name, __adapter: adapter };
        const folder = vscode.workspace.workspaceFolders?.[0];
        // The assistant debugs the file on disk: the user has not asked to save anything.
        const started = await vscode.debug.startDebugging(folder, configuration, { suppressSaveBeforeStart: true });
        return started ? undefined : "the editor did not start the session";
    } catch (error) {
        return error instanceof Error ? error.message : String(error);
    }
}
