/** "Open as Table" of the view "Compare": a sortable table of the call's lines with their differences. */

import * as vscode from "vscode";

import type { ComparisonBody } from "../session/requests.js";
import type { FromComparison, ShownComparison } from "../webview/messages.js";
import { openPage } from "./page.js";

/** The result of a comparison, in one line. */
export function verdictOf(answer: ComparisonBody): string {
    return answer.same ? vscode.l10n.t("Nothing differs") : vscode.l10n.t("Cause: {0}", answer.verdict);
}

/** Opens a page for one comparison. Later comparisons do not change this page. */
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
