/**
 * The commands "Record This File", "Profile This File" and "Try Fixes for This Line", which run `dynamo-dap run`,
 * `profile` and `fix`.
 */

import { basename, dirname, extname, join } from "node:path";
import * as vscode from "vscode";

import { frontDocument } from "../configuration/front-document.js";
import { savedFile } from "../configuration/ready-made.js";
import { COMMAND, findInterpreter } from "../environment/interpreter.js";
import { showError, showInformation } from "../notifications.js";
import { openFlameChart } from "../views/flame-chart.js";

const SOURCE = "torch.compile";
const TRY_FIX = "dynamo.tryFix";

/** Registers `dynamo.recordRun`, `dynamo.profileRun` and `dynamo.tryFixes`. Profiles are kept in `storage`. */
export function registerRecording(storage: vscode.Uri): vscode.Disposable {
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.recordRun", recordRun),
        vscode.commands.registerCommand("dynamo.profileRun", () => profileRun(vscode.Uri.joinPath(storage, "profiles"))),
        vscode.commands.registerCommand("dynamo.tryFixes", tryFixes),
    );
}

/** Records the program in front; if there is none, the example that the walkthrough names. */
async function recordRun(example?: string): Promise<void> {
    if (typeof example === "string" && vscode.window.activeTextEditor === undefined) {
        await vscode.commands.executeCommand("dynamo.openExample", example);
    }
    await runFile("record", (file) => ["run", file], offerReport);
}

/** Profiles the file in the editor. The profile is kept in `folder`, outside of the workspace. */
async function profileRun(folder: vscode.Uri): Promise<void> {
    await vscode.workspace.fs.createDirectory(folder);
    const stemOf = (file: string): string => join(folder.fsPath, basename(file, extname(file)));
    await runFile("profile", (file) => ["profile", "--html", "--output", stemOf(file), file], (exitCode, file) => offerProfile(exitCode, stemOf(file)));
}

/** Runs a `dynamo-dap` command on the file in the editor, as a task. `ended` gets the exit status and the file. */
async function runFile(
    what: string,
    words: (file: string) => string[],
    ended: (exitCode: number | undefined, file: string) => Promise<void>,
): Promise<void> {
    const document = frontDocument();
    if (document === undefined) {
        void showError(vscode.l10n.t("Open a Python file first."));
        return;
    }
    const file = await savedFile(document.uri);
    if (file === undefined) {
        return;
    }
    await vscode.workspace.save(file);
    // An example of the walkthrough is outside of the workspace.
    const folder = vscode.workspace.getWorkspaceFolder(file) ?? vscode.workspace.workspaceFolders?.[0];
    // The same folder as for F5: a record belongs to the folder in which its program ran.
    const cwd = folder?.uri.fsPath ?? dirname(file.fsPath);
    const name = `${what} ${vscode.workspace.asRelativePath(file)}`;
    const python = await findInterpreter(folder?.uri);
    const run = new vscode.ProcessExecution(python, ["-c", COMMAND, ...words(file.fsPath)], { cwd });
    const task = new vscode.Task({ type: "process" }, folder ?? vscode.TaskScope.Workspace, name, SOURCE, run);
    task.presentationOptions = { echo: false, clear: true };
    const execution = await vscode.tasks.executeTask(task);
    const watching = vscode.tasks.onDidEndTaskProcess((event) => {
        if (event.execution === execution) {
            watching.dispose();
            void ended(event.exitCode, file.fsPath);
        }
    });
}

async function offerProfile(exitCode: number | undefined, stem: string): Promise<void> {
    const [chart, table] = [vscode.l10n.t("Open the Flame Chart"), vscode.l10n.t("Open the Table")];
    const end = exitCode === 0 ? vscode.l10n.t("Profile written.") : vscode.l10n.t("The program ended with {0}. The profile covers what it compiled until then.", exitCode ?? vscode.l10n.t("a signal"));
    const chosen = await showInformation(end, chart, table);
    if (chosen === chart) {
        await openFlameChart(`${stem}.profile.html`);
    } else if (chosen === table) {
        await vscode.commands.executeCommand("vscode.open", vscode.Uri.file(`${stem}.cpuprofile`));
    }
}

async function offerReport(exitCode: number | undefined): Promise<void> {
    void vscode.commands.executeCommand("setContext", "dynamo.hasRecorded", true);
    const open = vscode.l10n.t("Open Report");
    const text = exitCode === 0 ? vscode.l10n.t("Record written.") : vscode.l10n.t("The program ended with {0}. The record covers what it compiled until then.", exitCode ?? vscode.l10n.t("a signal"));
    if ((await showInformation(text, open)) === open) {
        await vscode.commands.executeCommand("dynamo.openReport");
    }
}

async function tryFixes(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined || !(await vscode.commands.getCommands(true)).includes(TRY_FIX)) {
        void showError(vscode.l10n.t("Cannot try fixes: the torch.compile language server is not running. Is dynamo-dap installed?"));
        return;
    }
    const place = { uri: editor.document.uri.toString(), line: editor.selection.active.line };
    await vscode.commands.executeCommand(TRY_FIX, place);
}
