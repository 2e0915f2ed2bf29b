/**
 * Makes the paths of workspace files relative in the message of a stop: `at ./train.py:9`. VS Code looks for an
 * absolute path on the user's machine, so in a remote window a click on it opens nothing. A relative path leads to the
 * workspace.
 */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { withRelativePaths } from "./links-in-texts.js";

/** Registers a tracker for all sessions, which changes each message before VS Code reads it. */
export function registerRelativeLinks(): vscode.Disposable {
    return vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
        createDebugAdapterTracker: ({ workspaceFolder }): vscode.DebugAdapterTracker => ({
            onDidSendMessage: (message: DebugProtocol.Response): void => {
                if (message.type === "response" && message.command === "exceptionInfo" && message.success && workspaceFolder !== undefined) {
                    const { details } = (message as DebugProtocol.ExceptionInfoResponse).body;
                    if (details?.stackTrace !== undefined) {
                        details.stackTrace = withRelativePaths(details.stackTrace, workspaceFolder.uri.fsPath);
                    }
                }
            },
        }),
    });
}
