/** Gives each of your lines that a stage computes its own colour, and what it became in the stages the same. */

import * as vscode from "vscode";

import type { ExploredStages } from "../session/explored-stages.js";

const COLOURS = ["#e6194b", "#3cb44b", "#ffb000", "#4363d8", "#911eb4", "#00a0a0", "#f032e6", "#80a000", "#9a6324", "#5fa8ff"];
/** Text stays readable on it, in dark and in light themes. */
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
        // The editor of the program, too, gets its colours when the first stage opens beside it.
        vscode.window.onDidChangeVisibleTextEditors(paint),
    );
}
