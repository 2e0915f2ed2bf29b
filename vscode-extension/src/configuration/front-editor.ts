/** Finds the editor with the file that a person works on. */

import * as vscode from "vscode";

/**
 * Returns the editor in front. While the Output panel has the focus, VS Code names the panel's text as the active editor:
 * then it is the editor of the tab in front, else another one that is visible.
 */
export function frontEditor(): vscode.TextEditor | undefined {
    const active = vscode.window.activeTextEditor;
    if (active !== undefined && active.document.uri.scheme !== "output") {
        return active;
    }
    const inTabs = vscode.window.visibleTextEditors.filter(({ viewColumn }) => viewColumn !== undefined);
    const { viewColumn } = vscode.window.tabGroups.activeTabGroup;
    return inTabs.find((editor) => editor.viewColumn === viewColumn) ?? inTabs[0];
}
