/**
 * Opens a terminal for the output of each rank, if `"rankOutput"` is `"terminal"`. The sessions of ranks are children
 * of the job's session. A terminal stays after its session, until the user closes it or a rank of the same name starts.
 */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";

const RANK = /^rank \d+/;
const PRINTED = ["stdout", "stderr"];

export function registerRankTerminals(): vscode.Disposable {
    const terminals = new Map<string, vscode.Terminal>();
    return vscode.Disposable.from(
        vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
            createDebugAdapterTracker(session): vscode.DebugAdapterTracker | undefined {
                const asked: unknown = session.parentSession?.configuration.rankOutput ?? session.configuration.rankOutput;
                if (asked !== "terminal" || !RANK.test(session.name)) {
                    return undefined;
                }
                terminals.get(session.name)?.dispose();
                const output = new RankOutput();
                const terminal = vscode.window.createTerminal({ name: session.name, pty: output });
                terminals.set(session.name, terminal);
                terminal.show(true);
                return {
                    onDidSendMessage(message: DebugProtocol.OutputEvent): void {
                        if (message.type === "event" && message.event === "output" && PRINTED.includes(message.body.category ?? "")) {
                            output.write(message.body.output);
                        }
                    },
                };
            },
        }),
        {
            dispose: () => {
                terminals.forEach((terminal) => {
                    terminal.dispose();
                });
            },
        },
    );
}

/** The terminal of one rank. It shows output and takes no input. */
class RankOutput implements vscode.Pseudoterminal {
    private readonly written = new vscode.EventEmitter<string>();
    /** Output that arrived before the terminal opened; undefined once it is open. */
    private waiting: string | undefined = "";
    readonly onDidWrite = this.written.event;

    open(): void {
        const text = this.waiting ?? "";
        this.waiting = undefined;
        this.written.fire(text);
    }

    close(): void {
        this.waiting = "";
    }

    write(text: string): void {
        const shown = text.replace(/\r?\n/g, "\r\n");
        if (this.waiting === undefined) {
            this.written.fire(shown);
        } else {
            this.waiting += shown;
        }
    }
}
