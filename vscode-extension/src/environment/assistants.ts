/** Offers `python -m dynamo_dap mcp` to the editor's assistant, if the editor has the API for it. */

import { execFile } from "node:child_process";
import * as vscode from "vscode";

import { showError, showWarning } from "../notifications.js";
import { findInterpreter } from "./interpreter.js";

const ID = "dynamo.assistants";
const LABEL = vscode.l10n.t("torch.compile debugger");
const CHECK_MILLISECONDS = 20_000;
/** Removes the working directory, which Python puts first on sys.path: files of the user there could shadow modules. */
const COMMAND = "import sys; del sys.path[0]; from dynamo_dap.command_line import main; sys.exit(main())";
const CHECK = "import sys; del sys.path[0]; import dynamo_dap.commands.mcp, mcp.server.mcpserver";

/** Types of VS Code 1.101 and newer, which the types of this extension's VS Code version lack. */
interface ServerDefinition {
    cwd?: vscode.Uri;
}
type DefinitionClass = new (
    label: string,
    command: string,
    args: string[],
    env?: Record<string, string | number | null>,
    version?: string,
) => ServerDefinition;
interface Provider {
    onDidChangeMcpServerDefinitions: vscode.Event<void>;
    provideMcpServerDefinitions: () => Promise<ServerDefinition[]>;
}
interface Interfaces {
    lm?: { registerMcpServerDefinitionProvider?: (id: string, provider: Provider) => vscode.Disposable };
    McpStdioServerDefinition?: DefinitionClass;
}

/** The command that starts the server. */
interface ServerCommand {
    command: string;
    args: string[];
    env: Record<string, string>;
}

/**
 * Offers the server, and registers a command that shows its configuration. Offers nothing if the editor lacks the API,
 * or the environment lacks the SDK. `environment` has the variables for the server's process.
 */
export function registerAssistants(version: string, environment: Record<string, string>): vscode.Disposable {
    const showing = vscode.commands.registerCommand("dynamo.showAssistantServer", () => show(environment));
    const { lm, McpStdioServerDefinition: Definition } = vscode as unknown as Interfaces;
    if (lm?.registerMcpServerDefinitionProvider === undefined || Definition === undefined) {
        return showing;
    }
    const changed = new vscode.EventEmitter<void>();
    const watching = vscode.workspace.onDidChangeConfiguration((event) => {
        if (event.affectsConfiguration("dynamo.python")) {
            changed.fire();
        }
    });
    const provider: Provider = {
        onDidChangeMcpServerDefinitions: changed.event,
        provideMcpServerDefinitions: async () => {
            const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
            const server = await serverFor(folder, environment).catch(() => undefined);
            if (folder === undefined || server === undefined || !(await canServe(server.command))) {
                return [];
            }
            const definition = new Definition(LABEL, server.command, server.args, server.env, version);
            definition.cwd = folder;
            return [definition];
        },
    };
    try {
        return vscode.Disposable.from(showing, changed, watching, lm.registerMcpServerDefinitionProvider(ID, provider));
    } catch {
        // In VS Code 1.100 this API is a proposal, which extensions must not use.
        return vscode.Disposable.from(showing, changed, watching);
    }
}

async function serverFor(folder: vscode.Uri | undefined, env: Record<string, string>): Promise<ServerCommand> {
    const python = await findInterpreter(folder);
    return { command: python, args: ["-c", COMMAND, "mcp", "--folder", folder?.fsPath ?? "."], env };
}

/** Opens the configuration for assistants; most of them use the same format. */
async function show(environment: Record<string, string>): Promise<void> {
    const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
    try {
        const server = await serverFor(folder, environment);
        const content = `${JSON.stringify({ mcpServers: { "dynamo-dap": server } }, null, 2)}\n`;
        await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: "json", content }));
        if (!(await canServe(server.command))) {
            void showWarning(vscode.l10n.t("The MCP server needs the package mcp. Run: {0} -m pip install \"dynamo-dap[mcp]\"", server.command));
        }
    } catch (error) {
        void showError(error instanceof Error ? error.message : String(error));
    }
}

function canServe(python: string): Promise<boolean> {
    return new Promise((done) => {
        execFile(python, ["-c", CHECK], { timeout: CHECK_MILLISECONDS }, (error) => {
            done(error === null);
        });
    });
}
