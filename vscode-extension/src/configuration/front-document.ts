/** Finds the file that the user works on. */

import * as vscode from "vscode";

import { withFile } from "./file-variables.js";
import type { DynamoConfiguration } from "./options.js";

let latestPython: vscode.TextDocument | undefined;

/** Keeps track of the Python file that was last in front. */
export function followPythonFiles(): vscode.Disposable {
    const follow = (editor: vscode.TextEditor | undefined): void => {
        if (editor?.document.languageId === "python") {
            latestPython = editor.document;
        }
    };
    follow(vscode.window.activeTextEditor);
    return vscode.window.onDidChangeActiveTextEditor(follow);
}

/**
 * Returns the document in front. While the Output panel has the focus, VS Code reports the panel as the active editor;
 * while a page has the focus, it reports none. In these cases this returns the document of the active tab group, else a
 * visible document (Python first), else the Python file that was last in front, if its tab is still open.
 */
export function frontDocument(): vscode.TextDocument | undefined {
    const active = vscode.window.activeTextEditor;
    if (active !== undefined && active.document.uri.scheme !== "output") {
        return active.document;
    }
    const inTabs = vscode.window.visibleTextEditors.filter(({ viewColumn }) => viewColumn !== undefined);
    const { viewColumn } = vscode.window.tabGroups.activeTabGroup;
    const visible = [...inTabs.filter((editor) => editor.viewColumn === viewColumn), ...inTabs].map(({ document }) => document);
    const covered = latestPython !== undefined && hasTab(latestPython.uri) ? latestPython : undefined;
    return visible.find(({ languageId }) => languageId === "python") ?? covered ?? visible[0];
}

function hasTab(uri: vscode.Uri): boolean {
    const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs);
    return tabs.some(({ input }) => input instanceof vscode.TabInputText && input.uri.toString() === uri.toString());
}

/** Replaces `${file}` by the Python file in front, which VS Code cannot do without an active editor. */
export function withFrontFile(configuration: DynamoConfiguration): DynamoConfiguration {
    const document = vscode.window.activeTextEditor === undefined ? frontDocument() : undefined;
    const isFile = document?.languageId === "python" && document.uri.scheme === "file";
    return isFile ? withFile(configuration, document.uri.fsPath) : configuration;
}
