/** "Explore Stages" and "Open Stage…": the stages of a compile side by side, as documents of the session. */

import * as vscode from "vscode";

import { showError } from "../notifications.js";
import type { ExploredStages } from "../session/explored-stages.js";
import type { StageBody } from "../session/requests.js";
import { errorText } from "../session/stopped-frame.js";

/** The stages that "Explore Stages" opens, and their columns beside the user's file. */
const OPENED_FIRST: [string, vscode.ViewColumn][] = [
    ["dynamo", vscode.ViewColumn.Two],
    ["forward-kernels", vscode.ViewColumn.Three],
];

interface StageItem extends vscode.QuickPickItem {
    stage: StageBody;
    showsChanges: boolean;
}

export function registerStages(stages: ExploredStages): vscode.Disposable {
    const registered = (command: string, run: (stages: ExploredStages) => Promise<void>): vscode.Disposable =>
        vscode.commands.registerCommand(command, async () => {
            try {
                await run(stages);
            } catch (problem) {
                void showError(vscode.l10n.t("Stages cannot be shown: {0}", errorText(problem)));
            }
        });
    return vscode.Disposable.from(registered("dynamo.exploreStages", openFirst), registered("dynamo.openStage", openChosen));
}

async function openFirst(stages: ExploredStages): Promise<void> {
    const explored = await stages.fetch();
    for (const [id, column] of OPENED_FIRST) {
        const stage = explored.stages.find((each) => each.id === id);
        if (stage !== undefined) {
            await show(stages.address(stage.source), column);
        }
    }
    // The user's file comes last, so that it gets the focus.
    const editor = await show(vscode.Uri.file(explored.place.path), vscode.ViewColumn.One);
    selectLineWithKernel(stages, editor);
}

/** Moves the cursor to the first line that a kernel computes, unless the cursor's line already has counterparts. */
function selectLineWithKernel(stages: ExploredStages, editor: vscode.TextEditor): void {
    const counterparts = (line: number): string[] => (stages.find(editor.document, line + 1)?.counterparts ?? []).map(({ stage }) => stage);
    const lines = Array.from({ length: editor.document.lineCount }, (_, line) => line);
    const first = lines.find((line) => counterparts(line).includes("forward-kernels"));
    if (first !== undefined && counterparts(editor.selection.active.line).length === 0) {
        editor.selection = new vscode.Selection(first, 0, first, 0);
        editor.revealRange(editor.selection, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
    }
}

async function openChosen(stages: ExploredStages): Promise<void> {
    const explored = await stages.fetch();
    const items = explored.stages.flatMap((stage): StageItem[] => [
        { label: stage.id, description: stage.title, stage, showsChanges: false },
        ...(stage.before === undefined ? [] : [{ label: `${stage.id}: changes`, description: vscode.l10n.t("what its passes changed"), stage, showsChanges: true }]),
    ]);
    const chosen = await vscode.window.showQuickPick(items, { title: vscode.l10n.t("Stages of {0} [{1}]", explored.name, explored.id) });
    if (chosen?.showsChanges === true) {
        const [before, after] = [stages.address(chosen.stage.before), stages.address(chosen.stage.source)];
        await vscode.commands.executeCommand("vscode.diff", before, after, vscode.l10n.t("{0}: what its passes changed", chosen.stage.id));
    } else if (chosen !== undefined) {
        await show(stages.address(chosen.stage.source), vscode.ViewColumn.Beside);
    }
}

async function show(address: vscode.Uri, viewColumn: vscode.ViewColumn): Promise<vscode.TextEditor> {
    const document = await vscode.workspace.openTextDocument(address);
    return vscode.window.showTextDocument(document, { preview: false, viewColumn });
}
