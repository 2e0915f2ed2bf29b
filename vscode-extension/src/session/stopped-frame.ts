/** The frame that is selected in the call stack, and values in it. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";

/** A frame of a stop. */
export interface StoppedFrame {
    session: vscode.DebugSession;
    frameId: number;
    /** Distinguishes the stop from others: at the next stop, the same frame may have the same `frameId`. */
    stop: number;
}

/** A value that has children, in a frame of a stop. */
export interface Evaluated extends StoppedFrame {
    reference: number;
}

let stops = 0;

/** Counts the stops of all sessions. */
export function countStops(): vscode.Disposable {
    return vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
        createDebugAdapterTracker: (): vscode.DebugAdapterTracker => ({
            onDidSendMessage: (message: DebugProtocol.Event): void => {
                stops += message.type === "event" && message.event === "stopped" ? 1 : 0;
            },
        }),
    });
}

/** The selected frame, if it belongs to a session of this extension. */
export function stoppedFrame(): StoppedFrame | undefined {
    const item = vscode.debug.activeStackItem;
    return item instanceof vscode.DebugStackFrame && item.session.type === DEBUG_TYPE
        ? { session: item.session, frameId: item.frameId, stop: stops }
        : undefined;
}

/** The value of an expression in a frame; rejects if the value has no children. */
export async function evaluated(expression: string, frame: StoppedFrame): Promise<Evaluated> {
    const wanted: DebugProtocol.EvaluateArguments = { expression, frameId: frame.frameId, context: "watch" };
    const found = (await frame.session.customRequest("evaluate", wanted)) as DebugProtocol.EvaluateResponse["body"];
    if (found.variablesReference === 0) {
        throw new Error(vscode.l10n.t("{0} is not a tensor: {1}", expression, found.result));
    }
    return { ...frame, reference: found.variablesReference };
}

/** Returns the plain path of a source: in a remote window, VS Code turns the paths of answers into URIs. */
export function onDisk(path: string): string {
    return path.includes("://") ? vscode.Uri.parse(path).path : path;
}

/** Returns the message of a failed request. */
export function errorText(problem: unknown): string {
    return problem instanceof Error ? problem.message : String(problem);
}
