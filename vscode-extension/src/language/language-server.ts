/** Starts the language server `python -m dynamo_dap lsp`, which shows the workspace's newest record in the editor. */

import { execFile } from "node:child_process";
import * as vscode from "vscode";
import { InlayHintRequest, LanguageClient } from "vscode-languageclient/node";

import { DEBUG_TYPE } from "../configuration/options.js";
import { findInterpreter } from "../environment/interpreter.js";

const CHECK_MILLISECONDS = 20_000;
const NAME = vscode.l10n.t("torch.compile record");
const SETTINGS = "dynamo";
const INTERPRETER = "dynamo.python";

class LanguageServer implements vscode.Disposable {
    private client: LanguageClient | undefined;
    private changes: Promise<void> = Promise.resolve();

    /** `folder` is the working directory. It must not have files of the user: with "-m" it is first on sys.path. */
    constructor(private readonly folder: string) {}

    /** Restarts the server with the present interpreter. */
    restart(): void {
        this.changes = this.changes.then(async () => {
            await this.stop();
            await this.start();
        });
    }

    dispose(): void {
        this.changes = this.changes.then(() => this.stop());
    }

    /** Makes editors request inlay hints again; they otherwise keep the hints until the text changes. */
    refreshHints(): void {
        const hints = this.client?.isRunning() ? this.client.getFeature(InlayHintRequest.method) : undefined;
        for (const { document } of vscode.window.visibleTextEditors) {
            hints?.getProvider(document)?.onDidChangeInlayHints.fire();
        }
    }

    private async start(): Promise<void> {
        const python = await findInterpreter(vscode.workspace.workspaceFolders?.[0]?.uri).catch(() => undefined);
        // Opening a Python file does not offer to install the package; only debugging does.
        if (python === undefined || !(await this.canServe(python))) {
            return;
        }
        const client = new LanguageClient(
            "dynamo",
            NAME,
            { command: python, args: ["-m", "dynamo_dap", "lsp"], options: { cwd: this.folder } },
            {
                documentSelector: [{ language: "python", scheme: "file" }],
                initializationOptions: { ...settings(), breakpoints: true },
                middleware: {
                    // While stopped, inline values already show these names.
                    provideInlayHints: (document, range, token, next): vscode.ProviderResult<vscode.InlayHint[]> =>
                        isStopped() ? [] : next(document, range, token),
                    workspace: {
                        // If the interpreter changed, this client is being replaced.
                        didChangeConfiguration: async (sections, next): Promise<void> => {
                            await next(sections).catch((error: unknown) => {
                                if (this.client === client && client.isRunning()) {
                                    throw error;
                                }
                            });
                        },
                    },
                },
            },
        );
        this.client = client;
        await client.start().catch((error: unknown) => {
            client.error(String(error));
        });
    }

    private async stop(): Promise<void> {
        const { client } = this;
        this.client = undefined;
        await client?.dispose().catch(() => undefined);
    }

    private canServe(python: string): Promise<boolean> {
        const check = ["-c", "import dynamo_dap.language_server.server"];
        return new Promise((done) => {
            execFile(python, check, { cwd: this.folder, timeout: CHECK_MILLISECONDS }, (error) => {
                // An interpreter that exceeds the time limit may only be slow.
                done(error === null || error.killed === true);
            });
        });
    }
}

function isStopped(): boolean {
    const item = vscode.debug.activeStackItem;
    const shown = vscode.workspace.getConfiguration(SETTINGS).get<boolean>("inlineValues", true);
    return shown && item instanceof vscode.DebugStackFrame && item.session.type === DEBUG_TYPE;
}

function settings(): Record<string, boolean> {
    const known = vscode.workspace.getConfiguration(SETTINGS);
    return Object.fromEntries(["inlayHints", "diagnostics"].map((name) => [name, known.get<boolean>(name, true)]));
}

/** Starts the server, and restarts it when the interpreter changes. */
export function registerLanguageServer(extensionPath: string): vscode.Disposable {
    const server = new LanguageServer(extensionPath);
    server.restart();
    let wasStopped = false;
    return vscode.Disposable.from(
        server,
        vscode.debug.onDidChangeActiveStackItem(() => {
            if (isStopped() !== wasStopped) {
                wasStopped = !wasStopped;
                server.refreshHints();
            }
        }),
        vscode.workspace.onDidChangeConfiguration((event) => {
            if (event.affectsConfiguration(INTERPRETER)) {
                server.restart();
            }
        }),
        vscode.commands.registerCommand("dynamo.restartLanguageServer", () => {
            server.restart();
        }),
    );
}
