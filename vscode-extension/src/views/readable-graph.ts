/** Opens the readable code of a graph as a read-only document, through DAP's `source`. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { showError } from "../notifications.js";
import type { Compiles } from "../session/compiles.js";

/** Registers "Open Readable Graph" (of the selected compile) and "Open Graph of This Frame". */
export function registerReadableGraph(compiles: Compiles): vscode.Disposable {
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.openGraph", () =>
            show(async () => open((await compiles.graph())?.source, compiles.activeSession)),
        ),
        vscode.commands.registerCommand("dynamo.openFrameGraph", () => show(openGraphOfFrame)),
    );
}

/** Opens the document of the frame's scope `Graph` (traced so far) or `Compiled Graph` (about to run). */
async function openGraphOfFrame(): Promise<void> {
    const item = vscode.debug.activeStackItem;
    if (!(item instanceof vscode.DebugStackFrame) || item.session.type !== DEBUG_TYPE) {
        throw new Error(vscode.l10n.t("no frame is selected."));
    }
    const { scopes } = (await item.session.customRequest("scopes", {
        frameId: item.frameId,
    })) as DebugProtocol.ScopesResponse["body"];
    const source = scopes.find((scope) => scope.name.endsWith("Graph"))?.source;
    if (source === undefined) {
        throw new Error(vscode.l10n.t("this frame is neither traced nor generated code. Select another frame in the call stack."));
    }
    await open(source, item.session);
}

async function open(source: DebugProtocol.Source | undefined, session: vscode.DebugSession | undefined): Promise<void> {
    if (source === undefined || session === undefined) {
        throw new Error(vscode.l10n.t("the graph is empty, or the session has ended."));
    }
    // VS Code takes the document's name from the path.
    const named = { ...source, path: source.path ?? source.name ?? "graph" };
    const document = await vscode.workspace.openTextDocument(vscode.debug.asDebugSourceUri(named, session));
    await vscode.window.showTextDocument(document, { preview: true, viewColumn: vscode.ViewColumn.Beside });
}

async function show(opening: () => Promise<void>): Promise<void> {
    try {
        await opening();
    } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        void showError(vscode.l10n.t("The graph cannot be shown: {0}", reason));
    }
}
