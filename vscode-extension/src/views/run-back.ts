/** "Go Back to …": goes from a variable of a held trace, or a node of its graph, to the statement that it came from. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { showInformation } from "../notifications.js";
import { requestRunBack, type RunBackArguments } from "../session/requests.js";
import { errorText, stoppedFrame } from "../session/stopped-frame.js";
import type { TreeNode } from "./pull-tree.js";

type Origin = NonNullable<RunBackArguments["to"]>;

/** Registers `dynamo.runBackToBound` and the other commands for variables, and `dynamo.runBackToMade` for nodes. */
export function registerRunBack(): vscode.Disposable {
    const ofVariable = (command: string, to: Origin): vscode.Disposable =>
        vscode.commands.registerCommand(command, ({ variable }: { variable: DebugProtocol.Variable }) => runBack(variable.name, to));
    return vscode.Disposable.from(
        ofVariable("dynamo.runBackToBound", "bound"),
        ofVariable("dynamo.runBackToMutated", "mutated"),
        ofVariable("dynamo.runBackToGuarded", "guarded"),
        ofVariable("dynamo.runBackToNan", "nan"),
        vscode.commands.registerCommand("dynamo.runBackToMade", ({ item }: TreeNode) => runBack(item.label as string, "made")),
    );
}

/** Goes back. If the trace has no such statement, shows that as information. */
async function runBack(name: string, to: Origin): Promise<void> {
    const frame = stoppedFrame();
    try {
        if (frame === undefined) {
            throw new Error(vscode.l10n.t("To go back, stop in a trace and select its frame."));
        }
        await requestRunBack(frame.session, { frameId: frame.frameId, name, to });
    } catch (problem) {
        void showInformation(errorText(problem));
    }
}
