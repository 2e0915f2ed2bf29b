/** The command "Open Report": shows the page of the newest record, which the language server writes. */

import * as vscode from "vscode";

import { showError } from "../notifications.js";
import { followPage } from "./growing-page.js";

const WRITE_REPORT = "dynamo.writeReport";

/** Registers `dynamo.openReport`. */
export function registerReport(): vscode.Disposable {
    return vscode.commands.registerCommand("dynamo.openReport", openReport);
}

async function openReport(): Promise<void> {
    if (!(await vscode.commands.getCommands(true)).includes(WRITE_REPORT)) {
        void showError(vscode.l10n.t("Cannot write the report: the torch.compile language server is not running. Is dynamo-dap installed?"));
        return;
    }
    const path = await vscode.commands.executeCommand<string | null>(WRITE_REPORT);
    if (path !== null) {
        // The page's own policy allows only its own scripts, so texts of the record cannot run code.
        const options = { enableScripts: true, enableFindWidget: true, retainContextWhenHidden: true, localResourceRoots: [] };
        const panel = vscode.window.createWebviewPanel("dynamo.report", vscode.l10n.t("torch.compile report"), vscode.ViewColumn.Active, options);
        const stop = await followPage(path, (html) => {
            panel.webview.html = html;
        });
        panel.onDidDispose(stop);
    }
}
