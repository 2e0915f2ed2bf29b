/** Reads the findings of the newest records from the language server's diagnostics. */

import * as vscode from "vscode";

import type { Place } from "../session/requests.js";
import type { Finding } from "./finding-list.js";
import { placeText } from "./links.js";

const SOURCE = "torch.compile";

/** The beginning of the server's message at a line that may set a changed value. */
const SETS = /^may set\b/;

const SEVERITIES = {
    [vscode.DiagnosticSeverity.Error]: "error",
    [vscode.DiagnosticSeverity.Warning]: "warning",
    [vscode.DiagnosticSeverity.Information]: "info",
    [vscode.DiagnosticSeverity.Hint]: "info",
} as const;

/** Returns the findings of the newest record of each file, from the language server's diagnostics. */
export function recordedFindings(): Finding[] {
    return vscode.languages.getDiagnostics().flatMap(([uri, diagnostics]) =>
        diagnostics
            // Without the lines that were never traced: the editor shows them faded, and they are not a problem.
            .filter(({ source, tags }) => source === SOURCE && !tags?.includes(vscode.DiagnosticTag.Unnecessary))
            .map((diagnostic): Finding => {
                const [title = "", ...details] = diagnostic.message.split("\n");
                const place = placeAt(uri, diagnostic.range);
                const related = (diagnostic.relatedInformation ?? []).map(({ message, location }) => ({ message, at: placeAt(location.uri, location.range) }));
                const setAt = related.filter(({ message }) => SETS.test(message)).map(({ at }) => at);
                const texts = related.map(({ message, at }) => (placeText(at) === placeText(place) ? message : `${placeText(at)} ${message}`));
                return {
                    title,
                    details: [...details, ...texts],
                    place,
                    severity: SEVERITIES[diagnostic.severity],
                    isRecorded: true,
                    ...(setAt.length > 0 ? { setAt } : {}),
                };
            }),
    );
}

function placeAt(uri: vscode.Uri, range: vscode.Range): Place {
    return { path: uri.fsPath, line: range.start.line + 1 };
}
