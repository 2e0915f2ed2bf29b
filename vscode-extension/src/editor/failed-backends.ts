/** Notices backend failures in debug sessions. Reports one per session, if the session's program can be run again. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { programOf, type Program } from "./programs.js";

/** The text of a stop at a backend failure: of the agent, or of debugpy for the exception that follows. */
const FAILURE = /Backend failure|BackendCompilerFailed|InductorError/;

/** Calls `report` with the program of each session that stops at a backend failure. */
export function onBackendFailure(report: (program: Program) => void): vscode.Disposable {
    return vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
        createDebugAdapterTracker(session): vscode.DebugAdapterTracker | undefined {
            const program = programOf(session);
            let isTold = false;
            return program === undefined ? undefined : {
                onDidSendMessage(message: DebugProtocol.StoppedEvent): void {
                    if (!isTold && message.type === "event" && message.event === "stopped" && isFailure(message.body)) {
                        isTold = true;
                        report(program);
                    }
                },
            };
        },
    });
}

function isFailure({ reason, description = "", text = "" }: DebugProtocol.StoppedEvent["body"]): boolean {
    return reason === "exception" && FAILURE.test(`${description} ${text}`);
}
