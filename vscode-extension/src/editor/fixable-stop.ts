/** Finds the lines that caused a stop at a graph break or a recompile. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { placesIn } from "../session/links-in-texts.js";
import { onDisk } from "../session/stopped-frame.js";

type Stopped = DebugProtocol.StoppedEvent["body"];

const WHOLE_LINE = 10_000;

/** The beginning of a stop's description, if the stop's lines may have fixes. */
const FIXABLE = /^(Graph break|Recompile|fullgraph)/;

/** A stop, and the 0-based lines that it names: the line of the break, or the lines of the guards that failed. */
export interface FixableStop {
    uri: vscode.Uri;
    line: number;
    named: vscode.Location[];
}

/** Returns whether a stop's lines may have fixes. */
export function mayHaveFixes(body: Stopped): boolean {
    return FIXABLE.test(body.description ?? "");
}

/** Requests the place of a stop; undefined if it is not in a file. */
export async function fixableStop(session: vscode.DebugSession, body: Stopped): Promise<FixableStop | undefined> {
    const wanted: DebugProtocol.StackTraceArguments = { threadId: body.threadId ?? 0, levels: 1 };
    const { stackFrames } = (await session.customRequest("stackTrace", wanted)) as DebugProtocol.StackTraceResponse["body"];
    const [top] = stackFrames;
    if (top?.source?.path === undefined) {
        return undefined;
    }
    const stopped = { path: onDisk(top.source.path), line: top.line };
    const named = [stopped, ...placesIn(body.text ?? "")].map(({ path, line }) => new vscode.Location(vscode.Uri.file(path), new vscode.Range(line - 1, 0, line - 1, WHOLE_LINE)));
    return { uri: vscode.Uri.file(stopped.path), line: stopped.line - 1, named };
}
