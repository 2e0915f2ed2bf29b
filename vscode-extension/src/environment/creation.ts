/** "Create Environment": uses the Python extension if it is installed, else a terminal. */

import { join } from "node:path";
import * as vscode from "vscode";

const BY_PYTHON_EXTENSION = "python.createEnvironment";
const NAME = ".venv";

/**
 * Makes an environment in the workspace folder of `scope`, where later starts look for it. The terminal then shows the
 * command that installs torch, but does not run it, so that the user can choose the version.
 */
export async function createEnvironment(python: readonly string[], scope: vscode.Uri | undefined): Promise<void> {
    if ((await vscode.commands.getCommands(true)).includes(BY_PYTHON_EXTENSION)) {
        await vscode.commands.executeCommand(BY_PYTHON_EXTENSION);
        return;
    }
    const folder = (scope === undefined ? undefined : vscode.workspace.getWorkspaceFolder(scope)) ?? vscode.workspace.workspaceFolders?.[0];
    const terminal = vscode.window.createTerminal({ name: vscode.l10n.t("Create Environment"), ...(folder === undefined ? {} : { cwd: folder.uri }) });
    terminal.show();
    terminal.sendText([...python.map(quoted), "-m", "venv", NAME].join(" "));
    const created = join(NAME, process.platform === "win32" ? "Scripts/python" : "bin/python");
    terminal.sendText([created, "-m", "pip", "install", "torch"].join(" "), false);
}

function quoted(word: string): string {
    return /^[\w./:\\-]+$/.test(word) ? word : `"${word}"`;
}
