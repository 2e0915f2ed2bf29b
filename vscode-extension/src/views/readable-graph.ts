/** Opens the readable code of the selected graph as a read-only document, through DAP's `source`. */

import * as vscode from "vscode";

import type { Compiles } from "../session/compiles.js";

/** Registers the command "Open Readable Graph". */
export function registerReadableGraph(compiles: Compiles): vscode.Disposable {
    return vscode.commands.registerCommand("dynamo.openGraph", async () => {
        try {
            await openGraph(compiles);
        } catch (error) {
            const reason = error instanceof Error ? error.message : String(error);
            void vscode.window.showErrorMessage(`The graph cannot be shown: ${reason}`);
        }
    });
}

async function openGraph(compiles: Compiles): Promise<void> {
    const source = (await compiles.graph())?.source;
    if (source === undefined || compiles.activeSession === undefined) {
        throw new Error("there is no graph, or the session is over.");
    }
    // Without a path the document would have no name.
    const named = { ...source, path: source.path ?? source.name ?? "graph" };
    const uri = vscode.debug.asDebugSourceUri(named, compiles.activeSession);
    const document = await vscode.workspace.openTextDocument(uri);
    await vscode.window.showTextDocument(document, { preview: true, viewColumn: vscode.ViewColumn.Beside });
}
