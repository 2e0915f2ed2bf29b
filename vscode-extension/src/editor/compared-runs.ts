/**
 * "Compare Two Runs…": runs `dynamo-dap diff` on two commands, records or trace logs. Opens the chosen difference in a
 * diff editor, next to the user's line.
 */

import { basename } from "node:path";
import * as vscode from "vscode";

import { frontDocument } from "../configuration/front-document.js";
import { findInterpreter } from "../environment/interpreter.js";
import { showError, showInformation } from "../notifications.js";
import { errorText } from "../session/stopped-frame.js";
import { ReadOnlyTexts } from "../views/read-only-texts.js";
import { WatchedRuns } from "./watched-runs.js";

interface Place {
    path: string;
    line: number;
}

/** A difference, as in the output of `diff --json`. */
interface Difference {
    kind: string;
    text: string;
    place?: Place;
    placeInB?: Place;
    /** Lines with `-` are only in A, lines with `+` only in B. */
    diff?: string[];
}

interface Item extends vscode.QuickPickItem {
    difference: Difference;
}

class ComparedRuns implements vscode.Disposable {
    private readonly runs = new WatchedRuns(vscode.l10n.t("torch.compile: Compare Two Runs"));
    private readonly texts = new ReadOnlyTexts("dynamo-compared-run");
    private readonly registration = vscode.commands.registerCommand("dynamo.compareRuns", async () => {
        try {
            await this.compare();
        } catch (problem) {
            void showError(errorText(problem));
        }
    });

    dispose(): void {
        vscode.Disposable.from(this.registration, this.texts, this.runs).dispose();
    }

    private async compare(): Promise<void> {
        const folder = vscode.workspace.workspaceFolders?.[0];
        const a = await asked(vscode.l10n.t("Compare two runs: the first"), commandInEditor());
        const b = a === undefined ? undefined : await asked(vscode.l10n.t("Compare two runs: the second"), a);
        if (a === undefined || b === undefined) {
            return;
        }
        await vscode.workspace.saveAll(false);
        const python = [await findInterpreter(folder?.uri)];
        const program = { name: a, python, words: [a, b], cwd: folder?.uri.fsPath ?? ".", env: process.env, folder };
        const found = await this.runs.answer<{ differences: Difference[] }>(vscode.l10n.t("Comparing {0} with {1}", a, b), program, ["diff", "--json"]);
        if (found === undefined) {
            void showInformation(vscode.l10n.t("Cancelled."));
        } else if (found.differences.length === 0) {
            void showInformation(vscode.l10n.t("No difference between {0} and {1}.", a, b));
        } else {
            const title = vscode.l10n.t("Differences (in order)");
            const chosen = await vscode.window.showQuickPick(found.differences.map(itemOf), { title, ignoreFocusOut: true });
            await (chosen === undefined ? undefined : this.show(chosen.difference));
        }
    }

    private async show({ text, place, placeInB, diff = [] }: Difference): Promise<void> {
        const at = place ?? placeInB;
        if (at !== undefined) {
            const selection = new vscode.Range(at.line - 1, 0, at.line - 1, 0);
            await vscode.window.showTextDocument(vscode.Uri.file(at.path), { selection, viewColumn: vscode.ViewColumn.One });
        }
        if (diff.length > 0) {
            const [a, b] = [this.texts.add("A.py", side(diff, "-")), this.texts.add("B.py", side(diff, "+"))];
            await vscode.commands.executeCommand("vscode.diff", a, b, text, { viewColumn: at === undefined ? vscode.ViewColumn.Active : vscode.ViewColumn.Two });
        }
    }
}

/** Registers `dynamo.compareRuns`. */
export function registerComparedRuns(): ComparedRuns {
    return new ComparedRuns();
}

function asked(title: string, value: string): Thenable<string | undefined> {
    const prompt = vscode.l10n.t("A command, a record, or a folder of trace logs. You can put environment variables first: SEED=1 train.py");
    return vscode.window.showInputBox({ title, prompt, value, ignoreFocusOut: true });
}

/** The path of the file in the editor, quoted for a shell. */
function commandInEditor(): string {
    const document = frontDocument();
    if (document?.languageId !== "python" || document.isUntitled) {
        return "";
    }
    const path = vscode.workspace.asRelativePath(document.uri, false);
    return /^[\w./-]+$/.test(path) ? path : `'${path}'`;
}

function itemOf(difference: Difference): Item {
    const at = difference.place ?? difference.placeInB;
    const detail = at === undefined ? "" : `${basename(at.path)}:${at.line}`;
    return { label: difference.text, description: difference.kind, detail, difference };
}

/** The text of one side: its own lines, and those of both sides. */
function side(diff: string[], sign: string): string {
    const lines = diff.filter((line) => line.startsWith(sign) || !/^[-+]/.test(line));
    return lines.map((line) => (line.startsWith("@@") ? line : line.slice(1))).join("\n");
}
