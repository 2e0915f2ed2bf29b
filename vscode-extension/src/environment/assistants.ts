/** Offers `python -m dynamo_dap mcp` to the editor's assistant, in an editor that has the interface for it. */

import { execFile } from "node:child_process";
import * as vscode from "vscode";

import { findInterpreter } from "./interpreter.js";

const ID = "dynamo.assistants";
const LABEL = "torch.compile (dynamo-dap)";
const CHECK_MILLISECONDS = 20_000;
/** Python puts its working directory first on its path: the user's files must not shadow modules there. */
const COMMAND = "import sys; del sys.path[0]; from dynamo_dap.command_line import main; sys.exit(main())";
const CHECK = "import sys; del sys.path[0]; import dynamo_dap.assistants.command, mcp.server.mcpserver";

/** What VS Code 1.101 and newer have, of which the types that this extension is built with know nothing. */
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

/** Registers the server; nothing happens in an editor without the interface, or without the SDK in the environment. */
export function registerAssistants(version: string): vscode.Disposable {
    const { lm, McpStdioServerDefinition: Definition } = vscode as unknown as Interfaces;
    if (lm?.registerMcpServerDefinitionProvider === undefined || Definition === undefined) {
        return new vscode.Disposable(() => undefined);
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
            const python = await findInterpreter(folder).catch(() => undefined);
            if (folder === undefined || python === undefined || !(await canServe(python))) {
                return [];
            }
            const definition = new Definition(LABEL, python, ["-c", COMMAND, "mcp", "--folder", folder.fsPath], {}, version);
            definition.cwd = folder;
            return [definition];
        },
    };
    try {
        return vscode.Disposable.from(changed, watching, lm.registerMcpServerDefinitionProvider(ID, provider));
    } catch {
        // VS Code 1.100 has it as a proposal, which an extension must not use.
        return vscode.Disposable.from(changed, watching);
    }
}

function canServe(python: string): Promise<boolean> {
    return new Promise((done) => {
        execFile(python, ["-c", CHECK], { timeout: CHECK_MILLISECONDS }, (error) => {
            done(error === null);
        });
    });
}
