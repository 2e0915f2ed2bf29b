/** Opens the examples of the walkthrough, and ticks a step when the user has done it. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";

/** Files in `media/examples`, by their names in the walkthrough. */
const EXAMPLES: Record<string, string> = {
    breakpoint: "breakpoint.py",
    break: "graph_break.py",
    recompile: "recompile.py",
    nan: "nan.py",
};
const MARKED = "a breakpoint is set here";

/** Patterns in a stop's description or text, each with the context key of its step. */
const STEPS: [RegExp, string][] = [
    [/^Graph break/, "dynamo.stoppedAt.graphBreak"],
    [/^Recompile/, "dynamo.stoppedAt.recompile"],
    [/^(NaN|Inf)/, "dynamo.stoppedAt.nan"],
    [/\(generated #\d+\)/, "dynamo.stoppedInGeneratedCode"],
];

/** Registers `dynamo.openExample` and follows stops. */
export function registerWalkthrough(context: vscode.ExtensionContext): vscode.Disposable {
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.openExample", (name: string) => openExample(context, name)),
        vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
            createDebugAdapterTracker: (): vscode.DebugAdapterTracker => ({
                onDidSendMessage: (message: DebugProtocol.StoppedEvent): void => {
                    if (message.type === "event" && message.event === "stopped") {
                        tick(message.body);
                    }
                },
            }),
        }),
    );
}

function tick({ description = "", text = "" }: DebugProtocol.StoppedEvent["body"]): void {
    const keys = STEPS.flatMap(([pattern, key]) => (pattern.test(description) || pattern.test(text) ? [key] : []));
    for (const key of ["dynamo.hasStopped", ...keys]) {
        void vscode.commands.executeCommand("setContext", key, true);
    }
}

/** Opens an editable copy of an example, with a breakpoint on its marked line. */
async function openExample({ extensionUri, globalStorageUri }: vscode.ExtensionContext, name: string): Promise<void> {
    const file = EXAMPLES[name];
    if (file === undefined) {
        throw new Error(vscode.l10n.t("Unknown example {0}.", name));
    }
    const copy = vscode.Uri.joinPath(globalStorageUri, "examples", file);
    await vscode.workspace.fs.copy(vscode.Uri.joinPath(extensionUri, "media", "examples", file), copy, { overwrite: true });
    const editor = await vscode.window.showTextDocument(copy, { preview: false });
    const marked = editor.document.getText().split("\n").findIndex((line) => line.includes(MARKED));
    const known = vscode.debug.breakpoints.some((each) => each instanceof vscode.SourceBreakpoint && each.location.uri.toString() === copy.toString());
    if (marked >= 0 && !known) {
        vscode.debug.addBreakpoints([new vscode.SourceBreakpoint(new vscode.Location(copy, new vscode.Position(marked, 0)))]);
    }
    await vscode.commands.executeCommand("workbench.view.debug");
    await vscode.window.showTextDocument(copy, { preview: false });
}
