/** "Diagnose Breakpoint", and the list of breakpoints that never stopped, at the end of a program. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import { readFile } from "node:fs/promises";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { showInformation } from "../notifications.js";
import { enclosingDefinition } from "./mentioned-names.js";
import { BreakpointOutcomes, type Outcome } from "../session/breakpoint-outcomes.js";

const MOST_NAMED = 10;

/** The argument of a command in the menu of a line number. */
interface LineInMenu {
    uri: vscode.Uri;
    /** From 1. */
    lineNumber: number;
}

/** Registers `dynamo.diagnoseBreakpoint` (for the menu's line or the cursor's line), and follows sessions. */
export function registerBreakpointDiagnosis(): vscode.Disposable {
    let newest: BreakpointOutcomes | undefined;
    const parents = new Set<string>();
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.diagnoseBreakpoint", (where?: LineInMenu) => {
            diagnose(newest, where);
        }),
        vscode.debug.onDidStartDebugSession(({ parentSession }) => {
            if (parentSession !== undefined) {
                parents.add(parentSession.id);
            }
        }),
        vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
            createDebugAdapterTracker(session): vscode.DebugAdapterTracker {
                const outcomes = new BreakpointOutcomes();
                newest = outcomes;
                return {
                    onWillReceiveMessage: (message: DebugProtocol.ProtocolMessage): void => {
                        outcomes.request(message);
                    },
                    onDidSendMessage: (message: DebugProtocol.Event): void => {
                        outcomes.answer(message);
                        // With several processes, another one may have reached the breakpoint.
                        if (message.type === "event" && message.event === "exited" && session.parentSession === undefined && !parents.has(session.id)) {
                            void report(outcomes.neverStopped());
                        }
                    },
                };
            },
        }),
    );
}

/** Lists breakpoints in the Debug Console, each with its function and the reason why it did not stop. */
async function report(outcomes: Outcome[]): Promise<void> {
    if (outcomes.length === 0) {
        return;
    }
    const lines = await Promise.all(outcomes.slice(0, MOST_NAMED).map(lineOf));
    const more = outcomes.length > MOST_NAMED ? [`  ${vscode.l10n.t("and {0} more", outcomes.length - MOST_NAMED)}`] : [];
    vscode.debug.activeDebugConsole.appendLine([vscode.l10n.t("Breakpoints that never stopped:"), ...lines, ...more].join("\n"));
}

async function lineOf({ path, line, isBound, message, reason }: Outcome): Promise<string> {
    const text = await readFile(path, "utf8").catch(() => "");
    const lines = text.split("\n");
    const name = /^\s*(?:async\s+)?def\s+(\w+)/.exec(lines[enclosingDefinition(lines, line - 1)] ?? "")?.[1];
    const why = reason ?? (isBound ? undefined : message);
    return `  ${path}:${line}${name === undefined ? "" : ` (${name})`}${why === undefined ? "" : `: ${why}`}`;
}

function diagnose(outcomes: BreakpointOutcomes | undefined, where: LineInMenu | undefined): void {
    const editor = vscode.window.activeTextEditor;
    const uri = where?.uri ?? editor?.document.uri;
    const line = where === undefined ? editor?.selection.active.line : where.lineNumber - 1;
    if (uri !== undefined && line !== undefined) {
        void showInformation(diagnosis(uri, line, outcomes));
    }
}

function stopsText(stops: number): string {
    switch (stops) {
        case 0:
            return vscode.l10n.t("it has not stopped");
        case 1:
            return vscode.l10n.t("it stopped once");
        default:
            return vscode.l10n.t("it stopped {0} times", stops);
    }
}

/** Describes the breakpoint at a 0-based line. */
function diagnosis(uri: vscode.Uri, line: number, outcomes: BreakpointOutcomes | undefined): string {
    const place = vscode.l10n.t("Line {0}", line + 1);
    const set = vscode.debug.breakpoints.find(
        (each): each is vscode.SourceBreakpoint =>
            each instanceof vscode.SourceBreakpoint && each.location.uri.toString() === uri.toString() && each.location.range.start.line === line,
    );
    if (set === undefined) {
        return vscode.l10n.t("{0} has no breakpoint. Put the cursor on a line that has one.", place);
    }
    if (!set.enabled) {
        return vscode.l10n.t("{0}: the breakpoint is disabled.", place);
    }
    const known = outcomes?.at(uri.fsPath, line + 1);
    if (known === undefined) {
        return vscode.l10n.t("{0}: no program has been debugged with this breakpoint yet. Press F5.", place);
    }
    const facts = [
        known.isBound ? vscode.l10n.t("the breakpoint is bound") : vscode.l10n.t("the breakpoint is not bound"),
        stopsText(known.stops),
        ...(known.message === undefined ? [] : [known.message]),
        ...(known.reason === undefined ? [] : [known.reason]),
        ...(set.condition ? [vscode.l10n.t("it stops only if {0}", set.condition)] : []),
        ...(set.hitCondition ? [vscode.l10n.t("its hit condition is {0}", set.hitCondition)] : []),
        ...(set.logMessage ? [vscode.l10n.t("it logs a message instead of stopping")] : []),
    ];
    return `${place}: ${facts.join("; ")}.`;
}
