/** Marks the counterparts of the cursor's line in the stages and the user's files. Hovers show kernels and lines. A link
 * leads from a kernel to its file. */

import * as vscode from "vscode";

import type { ExploredStages } from "../session/explored-stages.js";
import type { Part } from "../session/requests.js";
import type { LinkedPart } from "../session/stage-links.js";
import { placeText } from "../views/links.js";

const MOST_IN_HOVER = 12;
/** The comment that Inductor writes above a kernel. */
const KERNEL_PATH = /^# kernel path: (\/.+)$/gm;

export function registerStageMarks(stages: ExploredStages): vscode.Disposable {
    const mark = vscode.window.createTextEditorDecorationType({
        isWholeLine: true,
        backgroundColor: new vscode.ThemeColor("editor.findMatchHighlightBackground"),
        overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.findMatchForeground"),
    });
    let chosen: vscode.TextEditor | undefined;
    return vscode.Disposable.from(
        mark,
        vscode.window.onDidChangeTextEditorSelection(({ textEditor }) => {
            chosen = textEditor;
            light(stages, mark, textEditor);
        }),
        // A stage that opens later gets its marks, too.
        vscode.window.onDidChangeVisibleTextEditors((visible) => {
            if (chosen !== undefined && visible.includes(chosen)) {
                light(stages, mark, chosen);
            }
        }),
        vscode.languages.registerHoverProvider([{ language: "python" }, { scheme: "debug" }], {
            provideHover: (document, position) => hover(stages, document, position.line + 1),
        }),
        vscode.languages.registerDocumentLinkProvider({ scheme: "debug" }, { provideDocumentLinks: kernelFiles }),
    );
}

/** Links each kernel to its file, in which the user can set breakpoints. */
function kernelFiles(document: vscode.TextDocument): vscode.DocumentLink[] {
    return [...document.getText().matchAll(KERNEL_PATH)].map((found) => {
        const [all, path = ""] = found;
        const end = document.positionAt(found.index + all.length);
        return new vscode.DocumentLink(new vscode.Range(end.translate(0, -path.length), end), vscode.Uri.file(path));
    });
}

/** Marks counterparts in every editor, and scrolls to them. */
function light(stages: ExploredStages, mark: vscode.TextEditorDecorationType, chosen: vscode.TextEditor): void {
    const found = stages.find(chosen.document, chosen.selection.active.line + 1);
    if (found === undefined) {
        return;
    }
    for (const editor of vscode.window.visibleTextEditors) {
        const stage = stages.stageOf(editor.document);
        const ranges =
            stage === undefined
                ? (found.part?.lines ?? []).filter(({ path }) => path === editor.document.uri.fsPath).map(({ line }) => range(line, line))
                : found.counterparts.filter((each) => each.stage === stage).map(({ part }) => range(part.first, part.last));
        editor.setDecorations(mark, ranges);
        const [first] = ranges.sort((one, other) => one.start.line - other.start.line);
        if (editor !== chosen && first !== undefined) {
            editor.revealRange(first, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
        }
    }
}

function hover(stages: ExploredStages, document: vscode.TextDocument, line: number): vscode.Hover | undefined {
    const { part, counterparts } = stages.find(document, line) ?? { counterparts: [] };
    if (counterparts.length === 0) {
        return undefined;
    }
    const isForward = ({ stage }: LinkedPart): boolean => stage.startsWith("forward");
    const kernels = counterparts.filter(({ stage }) => stage.endsWith("-kernels")).sort((one, other) => Number(isForward(other)) - Number(isForward(one)));
    const lines = new Set((part === undefined ? kernels : [part]).flatMap((each) => each.lines.map(placeText)));
    // Without its kernels and fused operations, which repeat the reasons of all their lines.
    const shown = part === undefined ? counterparts.filter(({ stage }) => !/-(ir|kernels)$/.test(stage)) : [part];
    const kept = counterparts.filter(({ part: { saved, recomputed } }) => saved !== undefined || recomputed !== undefined);
    const lowerings = new Set((part === undefined ? counterparts : [part]).flatMap((each) => each.part.lowerings ?? []));
    const text = new vscode.MarkdownString();
    const section = (title: string, found: string[]): void => {
        if (found.length > 0) {
            text.appendMarkdown(`\n\n**${title}**\n\n`);
            text.appendText(bounded(found));
        }
    };
    text.appendText(part === undefined ? "" : [part.part.note, costs(part.part)].filter((each) => each).join(": "));
    section(vscode.l10n.t("Kernels"), kernels.map(describedKernel));
    if (part === undefined) {
        lines.delete(placeText({ path: document.uri.fsPath, line }));
    }
    section(part === undefined ? vscode.l10n.t("Fused with these lines") : vscode.l10n.t("Your lines"), [...lines]);
    section(vscode.l10n.t("For the backward pass"), kept.map((each) => `${each.part.name}: ${costs(each.part)}`));
    section(vscode.l10n.t("Why"), [...new Set(shown.flatMap((each) => (each.part.why ?? []).map((why) => `${each.part.name}: ${why}`)))]);
    section(vscode.l10n.t("Lowered by"), [...lowerings]);
    return new vscode.Hover(text);
}

function describedKernel({ part, stage }: LinkedPart): string {
    return [`${part.name} (${stage.split("-")[0] ?? ""})`, costs(part)].filter((each) => each).join(": ");
}

function costs({ read, written, flops, memory, isPeak, saved, recomputed }: Part): string {
    return [
        read !== undefined && vscode.l10n.t("reads {0}", size(read)),
        written !== undefined && vscode.l10n.t("writes {0}", size(written)),
        flops !== undefined && `${flops} FLOPs`,
        memory !== undefined && (isPeak === true ? vscode.l10n.t("{0} in use, the peak of its pass", size(memory)) : vscode.l10n.t("{0} in use", size(memory))),
        saved !== undefined && vscode.l10n.t("{0} saved for the backward pass", size(saved)),
        recomputed !== undefined && vscode.l10n.t("{0} computed again in the backward pass", size(recomputed)),
    ]
        .filter((each) => each)
        .join(", ");
}

function size(count: number): string {
    const power = Math.min(3, Math.floor(Math.log2(Math.max(1, count)) / 10));
    return power === 0 ? `${count} B` : `${(count / 1024 ** power).toFixed(1)} ${["", "KiB", "MiB", "GiB"][power] ?? ""}`;
}

function range(first: number, last: number): vscode.Range {
    return new vscode.Range(first - 1, 0, last - 1, 0);
}

function bounded(texts: string[]): string {
    const shown = texts.slice(0, MOST_IN_HOVER).join("\n");
    return texts.length > MOST_IN_HOVER ? vscode.l10n.t("{0}\nand {1} more", shown, texts.length - MOST_IN_HOVER) : shown || vscode.l10n.t("none");
}
