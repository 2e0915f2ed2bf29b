/**
 * Listings of generated code: the buttons that change between statements and instructions, and what the debug hover asks
 * for in them: the value of a name, and beside the code the rest of what a line is for.
 */

import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { requestListing, type ListingArguments } from "../session/requests.js";

/** As the debugger names them: `record #0.py`, `record #0.dynamo`. */
const LISTINGS: vscode.DocumentSelector = { scheme: "debug", pattern: "**/*#*.{py,dynamo}" };
/** Where a line begins to say what its code is for. */
const REMARK = / {2}# |[╶┌│]/;
const PATH = /[\p{L}_$][\p{L}\p{N}_.]*/gu;

export function registerListings(): vscode.Disposable {
    const show = (form: ListingArguments["form"]) => async (): Promise<void> => {
        const session = vscode.debug.activeDebugSession;
        if (session?.type === DEBUG_TYPE) {
            await requestListing(session, form);
        }
    };
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.showInstructions", show("instructions")),
        vscode.commands.registerCommand("dynamo.showStatements", show("statements")),
        vscode.languages.registerEvaluatableExpressionProvider(LISTINGS, { provideEvaluatableExpression }),
    );
}

function provideEvaluatableExpression(document: vscode.TextDocument, position: vscode.Position): vscode.EvaluatableExpression | undefined {
    const { text, range } = document.lineAt(position.line);
    const remark = REMARK.exec(text)?.index;
    if (remark !== undefined && position.character >= remark) {
        return new vscode.EvaluatableExpression(range.with(range.start.translate(0, remark)), `__listing__[${position.line + 1}]`);
    }
    for (const match of text.matchAll(PATH)) {
        const end = match.index + match[0].length;
        if (match.index <= position.character && position.character <= end) {
            // Of a path what comes up to the pointer: `state` or `state.last`.
            const rest = text.slice(position.character, end).indexOf(".");
            const stop = rest === -1 ? end : position.character + rest;
            const path = text.slice(match.index, stop);
            return new vscode.EvaluatableExpression(new vscode.Range(position.line, match.index, position.line, stop), path);
        }
    }
    return undefined;
}
