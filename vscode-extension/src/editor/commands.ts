/** The commands behind the button "Debug This File" and the links over functions. */

import * as vscode from "vscode";

import { frontDocument } from "../configuration/front-document.js";
import { all, currentFile, pytest, savedFile } from "../configuration/ready-made.js";

/**
 * Registers `dynamo.debugFile` (URI of the file), `dynamo.debugAs`, which asks for a ready-made configuration,
 * `dynamo.debugFunction` (URI, line to stop at, mode),
 * `dynamo.debugTest` (URI, pytest's id of the test in that file) and `dynamo.stopWhereSet` (lines to stop at).
 */
export function registerCommands(): vscode.Disposable {
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.debugFile", (uri?: vscode.Uri) => debugFile(uri, {})),
        vscode.commands.registerCommand("dynamo.debugAs", debugAs),
        vscode.commands.registerCommand("dynamo.debugFunction", debugFunction),
        vscode.commands.registerCommand("dynamo.debugTest", debugTest),
        vscode.commands.registerCommand("dynamo.stopWhereSet", (lines: { uri: string; line: number }[]) => {
            stopAt(lines.map(({ uri, line }) => ({ uri: vscode.Uri.parse(uri), line })));
        }),
    );
}

/** Sets a breakpoint at each of these 0-based lines that has none. */
export function stopAt(lines: readonly { uri: vscode.Uri; line: number }[]): void {
    const free = lines.filter(({ uri, line }) => !hasBreakpoint(uri, line));
    vscode.debug.addBreakpoints(free.map(({ uri, line }) => new vscode.SourceBreakpoint(new vscode.Location(uri, new vscode.Position(line, 0)))));
}

async function debugFunction(uri: vscode.Uri, line: number | undefined, mode: "compile-time" | "run-time"): Promise<void> {
    if (mode === "compile-time" && line !== undefined) {
        stopAt([{ uri, line }]);
    }
    await debugFile(uri, mode === "run-time" ? { mode, stopOnGeneratedCode: true } : {});
}

async function debugFile(uri: vscode.Uri | undefined, options: object): Promise<void> {
    const given = uri ?? frontDocument()?.uri;
    const file = given === undefined ? undefined : await savedFile(given);
    if (file !== undefined) {
        const folder = vscode.workspace.getWorkspaceFolder(file);
        await vscode.debug.startDebugging(folder, { ...currentFile, program: file.fsPath, ...options });
    }
}

async function debugAs(): Promise<void> {
    const chosen = await vscode.window.showQuickPick(all.map((configuration) => ({ label: configuration.name, configuration })), { title: vscode.l10n.t("Debug As") });
    if (chosen !== undefined) {
        const document = frontDocument();
        const folder = document === undefined ? undefined : vscode.workspace.getWorkspaceFolder(document.uri);
        await vscode.debug.startDebugging(folder ?? vscode.workspace.workspaceFolders?.[0], { ...chosen.configuration });
    }
}

async function debugTest(uri: vscode.Uri, id: string): Promise<void> {
    const name = vscode.l10n.t("Debug torch.compile: {0}", id);
    const folder = vscode.workspace.getWorkspaceFolder(uri);
    await vscode.debug.startDebugging(folder, { ...pytest, name, args: [`${uri.fsPath}::${id}`] });
}

function hasBreakpoint(uri: vscode.Uri, line: number): boolean {
    return vscode.debug.breakpoints.some(
        (breakpoint) =>
            breakpoint instanceof vscode.SourceBreakpoint &&
            breakpoint.location.uri.toString() === uri.toString() &&
            breakpoint.location.range.start.line === line,
    );
}
