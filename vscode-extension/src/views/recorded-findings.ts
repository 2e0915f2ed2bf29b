/** What the newest records report, read from the language server's diagnostics. */

import * as vscode from "vscode";

import type { Place } from "../session/requests.js";
import type { Finding } from "./finding-list.js";
import { placeText } from "./links.js";

const SOURCE = "torch.compile";

/** What the server's texts about lines that set a changed value begin with. */
const SETS = /^may set\b/;

/** Returns the findings of the newest record of each file, from the language server's diagnostics. */
export function recordedFindings(): Finding[] {
    return vscode.languages.getDiagnostics().flatMap(([uri, diagnostics]) =>
        diagnostics
            // Lines that were never traced are greyed in the editor; they are not a problem.
            .filter(({ source, tags }) => source === SOURCE && !tags?.includes(vscode.DiagnosticTag.Unnecessary))
            .map((diagnostic): Finding => {
                const [title = "", ...details] = diagnostic.message.split("\n");
                const related = diagnostic.relatedInformation ?? [];
                const setAt = related
                    .filter(({ message }) => SETS.test(message))
                    .map(({ location }) => placeAt(location));
                const texts = related.map(({ message, location }) => (SETS.test(message) ? `${placeText(placeAt(location))} ${message}` : message));
                return {
                    title,
                    details: [...details, ...texts],
                    place: { path: uri.fsPath, line: diagnostic.range.start.line + 1 },
                    severity: diagnostic.severity <= vscode.DiagnosticSeverity.Warning ? "warning" : "info",
                    isRecorded: true,
                    ...(setAt.length > 0 ? { setAt } : {}),
                };
            }),
    );
}

function placeAt({ uri, range }: vscode.Location): Place {
    return { path: uri.fsPath, line: range.start.line + 1 };
}
