/**
 * Shows links over functions under torch.compile (debug the tracing, step the generated code), over tests (debug), and
 * over lines with a log message (plot).
 */

import * as vscode from "vscode";

import { compiledDefinitions, type CompiledDefinition } from "./compiled-functions.js";
import { registerStopFixes } from "./stop-fixes.js";
import { isTestFile, testFunctions, type TestFunction } from "./test-functions.js";

const PYTHON_FILES: vscode.DocumentSelector = { language: "python", scheme: "file" };
const SETTING = "dynamo.codeLens";

class CodeLenses implements vscode.CodeLensProvider {
    private readonly changed = new vscode.EventEmitter<void>();
    readonly onDidChangeCodeLenses = this.changed.event;

    change(): void {
        this.changed.fire();
    }

    provideCodeLenses(document: vscode.TextDocument): vscode.CodeLens[] {
        if (!vscode.workspace.getConfiguration().get<boolean>(SETTING, true)) {
            return [];
        }
        const text = document.getText();
        const tests = isTestFile(document.uri.fsPath) ? testFunctions(text) : [];
        return [
            ...compiledDefinitions(text).flatMap((found) => lenses(document.uri, found)),
            ...tests.map((test) => lensOfTest(document.uri, test)),
            ...loggedLines(document.uri).map(lensOfPlot),
        ];
    }
}

/** Registers these links, and the links for fixes at a stop. */
export function registerCodeLenses(): vscode.Disposable {
    const provider = new CodeLenses();
    return vscode.Disposable.from(
        registerStopFixes(),
        vscode.languages.registerCodeLensProvider(PYTHON_FILES, provider),
        vscode.workspace.onDidChangeConfiguration((event) => {
            if (event.affectsConfiguration(SETTING)) {
                provider.change();
            }
        }),
        vscode.debug.onDidChangeBreakpoints(({ added, removed, changed }) => {
            // A change may also remove a log message.
            if (changed.length > 0 || [...added, ...removed].some(({ logMessage }) => logMessage !== undefined)) {
                provider.change();
            }
        }),
    );
}

function lenses(uri: vscode.Uri, found: CompiledDefinition): vscode.CodeLens[] {
    const range = new vscode.Range(found.line, 0, found.line, 0);
    const command = "dynamo.debugFunction";
    return [
        new vscode.CodeLens(range, {
            title: vscode.l10n.t("Debug tracing"),
            tooltip: vscode.l10n.t("Run this file and stop when Dynamo traces {0}", found.name),
            command,
            arguments: [uri, found.bodyLine, "compile-time"],
        }),
        new vscode.CodeLens(range, {
            title: vscode.l10n.t("Step generated code"),
            tooltip: vscode.l10n.t("Run this file and stop in every function that Dynamo generated"),
            command,
            arguments: [uri, undefined, "run-time"],
        }),
    ];
}

function lensOfTest(uri: vscode.Uri, { id, line, name }: TestFunction): vscode.CodeLens {
    return new vscode.CodeLens(new vscode.Range(line, 0, line, 0), {
        title: vscode.l10n.t("Debug test"),
        tooltip: vscode.l10n.t("Run {0} with pytest under the torch.compile debugger", name),
        command: "dynamo.debugTest",
        arguments: [uri, id],
    });
}

/** The lines of a file whose breakpoints log values. */
function loggedLines(uri: vscode.Uri): number[] {
    const found = vscode.debug.breakpoints.flatMap((breakpoint) => {
        const isLogging = breakpoint instanceof vscode.SourceBreakpoint && breakpoint.enabled && breakpoint.logMessage?.includes("{");
        return isLogging && breakpoint.location.uri.toString() === uri.toString() ? [breakpoint.location.range.start.line] : [];
    });
    return [...new Set(found)];
}

function lensOfPlot(line: number): vscode.CodeLens {
    return new vscode.CodeLens(new vscode.Range(line, 0, line, 0), {
        title: vscode.l10n.t("Plot"),
        tooltip: vscode.l10n.t("Plot the numbers that log messages print, hit by hit"),
        command: "dynamo.plotLogMessages",
    });
}
