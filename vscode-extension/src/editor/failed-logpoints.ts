/** Reports, at the end of a program, log messages that never had a value, and the line to which to move each logpoint. */

import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { showWarning } from "../notifications.js";
import { FailedLogs, type FailedLog } from "../session/failed-logs.js";
import { LOGGED_EVENT, type LoggedEventBody } from "../session/structures.js";
import { afterAssignment } from "./mentioned-names.js";

/** Follows sessions, each until its end. */
export function registerFailedLogpoints(): vscode.Disposable {
    const sessions = new Map<string, FailedLogs>();
    return vscode.Disposable.from(
        vscode.debug.onDidReceiveDebugSessionCustomEvent(({ session, event, body }) => {
            if (event === LOGGED_EVENT && session.type === DEBUG_TYPE) {
                const { path, line, values } = body as LoggedEventBody;
                const logs = sessions.get(session.id) ?? new FailedLogs();
                sessions.set(session.id, logs);
                logs.add(path, line, values);
            }
        }),
        vscode.debug.onDidTerminateDebugSession(({ id }) => {
            for (const log of sessions.get(id)?.failed() ?? []) {
                void report(log);
            }
            sessions.delete(id);
        }),
    );
}

async function report({ path, line, hits, expression, problem }: FailedLog): Promise<void> {
    const uri = vscode.Uri.file(path);
    const text = (await vscode.workspace.openTextDocument(uri)).getText();
    const target = afterAssignment(text.split(/\r?\n/), line - 1, expression);
    const warning = vscode.l10n.t("Log message at line {0}: {1} hits, all failed. {2}.", line, hits, problem);
    if (target === undefined) {
        void showWarning(warning);
        return;
    }
    const move = vscode.l10n.t("Move to Line {0}", target.line + 1);
    const why = vscode.l10n.t("A log message is printed before its line runs, and line {0} assigns {1}.", line, target.name);
    if ((await showWarning(`${warning} ${why}`, move)) === move) {
        moveLogpoints(uri, line - 1, target.line);
    }
}

function moveLogpoints(uri: vscode.Uri, from: number, to: number): void {
    for (const each of vscode.debug.breakpoints) {
        if (each instanceof vscode.SourceBreakpoint && each.logMessage && each.location.uri.fsPath === uri.fsPath && each.location.range.start.line === from) {
            const location = new vscode.Location(uri, new vscode.Position(to, 0));
            vscode.debug.addBreakpoints([new vscode.SourceBreakpoint(location, each.enabled, each.condition, each.hitCondition, each.logMessage)]);
            vscode.debug.removeBreakpoints([each]);
        }
    }
}
