/** "Save Diagnostic Logs": writes one file for a bug report, without values, output and environment variables. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import { execFile } from "node:child_process";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { COMMAND, findInterpreter } from "./interpreter.js";

const MOST_MESSAGES = 5000;
const DOCTOR_MILLISECONDS = 60_000;
/** Messages that contain no data of the program. */
const WHOLE = new Set(["initialize", "capabilities", "setBreakpoints", "setExceptionBreakpoints", "breakpoint", "exited", "terminated", "thread", "next", "stepIn", "stepOut", "continue", "threads"]);

/** Registers `dynamo.saveLogs` and keeps the last messages of sessions. */
export function registerDiagnosticLogs(version: string): vscode.Disposable {
    const messages: string[] = [];
    const keep = (session: vscode.DebugSession, arrow: string, message: DebugProtocol.ProtocolMessage): void => {
        messages.push(`${new Date().toISOString()} ${session.id.slice(0, 8)} ${arrow} ${logged(message)}`);
        if (messages.length > 2 * MOST_MESSAGES) {
            messages.splice(0, messages.length - MOST_MESSAGES);
        }
    };
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.saveLogs", () => save(version, messages)),
        vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
            createDebugAdapterTracker: (session): vscode.DebugAdapterTracker => ({
                onWillReceiveMessage: (message: DebugProtocol.ProtocolMessage): void => {
                    keep(session, "->", message);
                },
                onDidSendMessage: (message: DebugProtocol.ProtocolMessage): void => {
                    keep(session, "<-", message);
                },
                onError: (error): void => {
                    messages.push(String(error));
                },
            }),
        }),
    );
}

function logged(message: DebugProtocol.ProtocolMessage): string {
    const { command, event, request_seq: answered, success } = message as DebugProtocol.Response & DebugProtocol.Event;
    const isWhole = WHOLE.has(command) || WHOLE.has(event);
    return JSON.stringify(isWhole ? message : { seq: message.seq, type: message.type, command, event, request_seq: answered, success });
}

async function save(version: string, messages: readonly string[]): Promise<void> {
    const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
    const name = "torch-compile-debugger.log";
    const proposed = folder === undefined ? vscode.Uri.file(name) : vscode.Uri.joinPath(folder, name);
    const file = await vscode.window.showSaveDialog({ defaultUri: proposed, title: vscode.l10n.t("Save Diagnostic Logs") });
    if (file === undefined) {
        return;
    }
    const facts = [`extension=${version}`, `vscode=${vscode.version}`, `${process.platform}-${process.arch}`];
    const text = [...facts, "", await doctor(folder), "", ...messages.slice(-MOST_MESSAGES), ""].join("\n");
    await vscode.workspace.fs.writeFile(file, Buffer.from(text));
    await vscode.window.showTextDocument(file);
}

/** Returns the output of `dynamo-dap doctor`, or why it cannot run. */
async function doctor(folder: vscode.Uri | undefined): Promise<string> {
    try {
        const python = await findInterpreter(folder);
        return await new Promise((done) => {
            execFile(python, ["-c", COMMAND, "doctor"], { timeout: DOCTOR_MILLISECONDS, encoding: "utf8" }, (error, stdout, stderr) => {
                done([python, stdout, stderr, error === null ? "" : error.message].join("\n"));
            });
        });
    } catch (problem) {
        return String(problem);
    }
}
