/** Finds the Python that runs the program: the Python extension's choice, the setting, or an environment with torch. */

import { PythonExtension } from "@vscode/python-extension";
import * as vscode from "vscode";

import { allCandidates, described, inspect, nearby, type Candidate } from "./candidates.js";

/**
 * The code that runs `dynamo-dap WORDS` with `python -c`. It removes the working directory, which Python puts first on
 * sys.path: files of the user there could shadow modules.
 */
export const COMMAND = "import sys; del sys.path[0]; from dynamo_dap.command_line import main; sys.exit(main())";

const PYTHON_EXTENSION = "ms-python.python";

/** Returns the path of the interpreter for programs in `scope`. If there is none, throws an error for the user. */
export async function findInterpreter(scope: vscode.Uri | undefined): Promise<string> {
    const found = (await fromPythonExtension(scope)) ?? fromSetting(scope) ?? (await fromEnvironments(scope));
    if (found === undefined) {
        throw new Error(vscode.l10n.t("No Python was found. Choose one in the Python extension, or in the setting dynamo.python."));
    }
    return found;
}

/**
 * Asks the user for another interpreter and returns it; undefined if the user chose none. The Python extension stores
 * the choice if it is installed, else the setting `dynamo.python`.
 */
export async function chooseInterpreter(scope: vscode.Uri | undefined): Promise<string | undefined> {
    if (vscode.extensions.getExtension(PYTHON_EXTENSION) !== undefined) {
        const before = await fromPythonExtension(scope);
        await vscode.commands.executeCommand("python.setInterpreter");
        const after = await fromPythonExtension(scope);
        return after === before ? undefined : after;
    }
    const items = allCandidates(folderOf(scope)).then((found) => found.map(itemOf));
    const chosen = await vscode.window.showQuickPick(items, {
        title: vscode.l10n.t("Choose the Python environment of your program"),
        placeHolder: vscode.l10n.t("An environment with torch"),
        matchOnDescription: true,
        matchOnDetail: true,
    });
    if (chosen === undefined) {
        return undefined;
    }
    const target = vscode.workspace.workspaceFolders === undefined ? vscode.ConfigurationTarget.Global : vscode.ConfigurationTarget.Workspace;
    await vscode.workspace.getConfiguration("dynamo", scope ?? null).update("python", chosen.detail, target);
    return chosen.detail;
}

function itemOf(candidate: Candidate): { label: string; detail: string } {
    return { label: described(candidate), detail: candidate.path };
}

async function fromPythonExtension(scope: vscode.Uri | undefined): Promise<string | undefined> {
    if (vscode.extensions.getExtension(PYTHON_EXTENSION) === undefined) {
        return undefined;
    }
    const { environments } = await PythonExtension.api();
    const active = environments.getActiveEnvironmentPath(scope);
    const environment = await environments.resolveEnvironment(active);
    return environment?.executable.uri?.fsPath;
}

function fromSetting(scope: vscode.Uri | undefined): string | undefined {
    const setting = vscode.workspace.getConfiguration("dynamo", scope ?? null).get<string>("python", "").trim();
    return setting === "" ? undefined : setting;
}

/** Returns the first interpreter that has torch, else the first interpreter. */
async function fromEnvironments(scope: vscode.Uri | undefined): Promise<string | undefined> {
    const paths = nearby(folderOf(scope));
    for (const path of paths) {
        if ((await inspect(path))?.torch !== undefined) {
            return path;
        }
    }
    return paths[0];
}

function folderOf(scope: vscode.Uri | undefined): string | undefined {
    const folder = scope === undefined ? undefined : vscode.workspace.getWorkspaceFolder(scope);
    return (folder ?? vscode.workspace.workspaceFolders?.[0])?.uri.fsPath;
}
