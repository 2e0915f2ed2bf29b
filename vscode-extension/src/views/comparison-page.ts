/** "Open as Table" of the view "Compare": the lines of the call with their numbers, sortable. */

import * as vscode from "vscode";

import type { ComparisonBody } from "../session/requests.js";
import type { FromComparison, ShownComparison } from "../webview/messages.js";
import { openPage } from "./page.js";

/** What a comparison found, in one line. */
export function verdictOf(answer: ComparisonBody): string {
    return answer.same ? vscode.l10n.t("Nothing differs") : vscode.l10n.t("Cause: {0}", answer.verdict);
}

/** The page; it shows the comparison that it was opened for. */
export function openComparison(extension: vscode.Uri, answer: ComparisonBody): void {
    const call = vscode.l10n.t("call {0} of {1}", answer.call, answer.function);
    const panel = openPage(extension, "dynamo.comparisonPage", vscode.l10n.t("Compare: {0}", call), "comparison", '<p id="verdict"></p><table id="lines"></table>');
    const shown: ShownComparison = { title: verdictOf(answer), lines: answer.lines ?? [] };
    panel.webview.onDidReceiveMessage((message: FromComparison) => {
        if (message === "ready") {
            void panel.webview.postMessage(shown);
        } else {
            const start = new vscode.Position(message.line - 1, 0);
            const options = { selection: new vscode.Range(start, start), viewColumn: vscode.ViewColumn.One };
            void vscode.window.showTextDocument(vscode.Uri.file(message.path), options);
        }
    });
}
