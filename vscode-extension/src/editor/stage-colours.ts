/** Gives each of the user's lines its own colour, and the parts of stages that compute the line the same colour. */

import * as vscode from "vscode";

import type { ExploredStages } from "../session/explored-stages.js";

const COLOURS = ["#e6194b", "#3cb44b", "#ffb000", "#4363d8", "#911eb4", "#00a0a0", "#f032e6", "#80a000", "#9a6324", "#5fa8ff"];
/** The opacity: text on it stays readable in dark and light themes. */
const FAINT = "1f";

export function registerStageColours(stages: ExploredStages): vscode.Disposable {
    const colours = COLOURS.map((colour) =>
        vscode.window.createTextEditorDecorationType({ isWholeLine: true, backgroundColor: `${colour}${FAINT}` }),
    );
    const paint = (editors: readonly vscode.TextEditor[]): void => {
        for (const editor of editors) {
            const numbered = stages.numbered(editor.document);
            for (const [index, colour] of colours.entries()) {
                const own = numbered.filter(({ number }) => number % colours.length === index);
                editor.setDecorations(colour, own.map(({ first, last }) => new vscode.Range(first - 1, 0, last - 1, 0)));
            }
        }
    };
    return vscode.Disposable.from(
        ...colours,
        // This also colours the program's editor when the first stage opens.
        vscode.window.onDidChangeVisibleTextEditors(paint),
    );
}
