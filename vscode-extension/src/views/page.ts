/** The HTML of the extension's own pages, which run only their bundled scripts. */

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";

let lastColumn: vscode.ViewColumn | undefined;

/** Opens a panel beside the editor, in the group of the last panel. Its page is `body` with the bundled script `name`. */
export function openPage(extension: vscode.Uri, viewType: string, title: string, name: string, body: string): vscode.WebviewPanel {
    const out = vscode.Uri.joinPath(extension, "out");
    const options = { enableScripts: true, retainContextWhenHidden: true, localResourceRoots: [out] };
    const panel = vscode.window.createWebviewPanel(viewType, title, lastColumn ?? vscode.ViewColumn.Beside, options);
    lastColumn = panel.viewColumn;
    panel.onDidChangeViewState(() => {
        lastColumn = panel.viewColumn;
    });
    panel.onDidDispose(() => {
        lastColumn = undefined;
    });
    const { webview } = panel;
    const uri = (file: string): string => webview.asWebviewUri(vscode.Uri.joinPath(out, file)).toString();
    const nonce = randomBytes(16).toString("base64");
    const language = vscode.l10n.bundle === undefined ? "en" : vscode.env.language;
    const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src ${webview.cspSource};`;
    webview.html = `<!DOCTYPE html>
<html lang="${language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<link rel="stylesheet" href="${uri(`${name}.css`)}">
</head>
<body>
${body}
<script type="application/json" id="translations">${translations()}</script>
<script nonce="${nonce}" src="${uri(`${name}.js`)}"></script>
</body>
</html>`;
    return panel;
}

/** The translations of the user's language as a script; none for English. Escapes "<", which could end the script. */
function translations(): string {
    return JSON.stringify(vscode.l10n.bundle ?? {}).replaceAll("<", "\\u003c");
}

/** A translated text as HTML. */
export function asHtml(text: string): string {
    return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
