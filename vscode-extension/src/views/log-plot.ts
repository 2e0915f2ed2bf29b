/** "Plot Log Messages": plots the values of expressions in log messages, hit by hit, while the program runs. */

import * as vscode from "vscode";

import type { LoggedValues } from "../session/logged.js";
import { asHtml, openPage } from "./page.js";

const QUIET_MILLISECONDS = 250;
const EXAMPLE = "<code>{loss.item()}</code>";

/** Registers `dynamo.plotLogMessages`. */
export function registerLogPlot(extension: vscode.Uri, logged: LoggedValues): vscode.Disposable {
    let panel: vscode.WebviewPanel | undefined;
    let timer: NodeJS.Timeout | undefined;
    const say = (): void => {
        timer = undefined;
        void panel?.webview.postMessage(logged.all);
    };
    const open = (): void => {
        if (panel !== undefined) {
            panel.reveal();
            return;
        }
        const empty = asHtml(vscode.l10n.t("No numbers logged yet. Add a logpoint such as {0} to plot it here.")).replace("{0}", EXAMPLE);
        const body = `<p id="empty">${empty}</p><div id="plots"></div>`;
        panel = openPage(extension, "dynamo.logPlot", vscode.l10n.t("Log Messages"), "plot", body);
        panel.webview.onDidReceiveMessage(say);
        panel.onDidDispose(() => {
            panel = undefined;
        });
    };
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.plotLogMessages", open),
        logged.onDidChange(() => {
            // Collect changes, since a log message may be printed a thousand times a second.
            timer ??= panel === undefined ? undefined : setTimeout(say, QUIET_MILLISECONDS);
        }),
        new vscode.Disposable(() => {
            clearTimeout(timer);
        }),
    );
}
