/** "What if": compares the graph of a changed trace with the program's own, and lets the call run the changed graph. */

import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { showInformation } from "../notifications.js";
import { requestKeep, requestWhatIf, WHAT_IF_EVENT, type WhatIfBody } from "../session/requests.js";
import { errorText, stoppedFrame } from "../session/stopped-frame.js";
import { ReadOnlyTexts } from "./read-only-texts.js";

const SCHEME = "dynamo-what-if";
const COMPARE = vscode.l10n.t("Compare");

/** Registers `dynamo.compareWhatIf` and `dynamo.keepWhatIf`. A comparison stays readable after the end of the program. */
export function registerWhatIf(): vscode.Disposable {
    const graphs = new Graphs();
    return vscode.Disposable.from(
        graphs.texts,
        vscode.debug.onDidReceiveDebugSessionCustomEvent(({ event, body }) => {
            if (event === WHAT_IF_EVENT) {
                void graphs.report(body as WhatIfBody);
            }
        }),
        vscode.commands.registerCommand("dynamo.compareWhatIf", () => graphs.compare()),
        vscode.commands.registerCommand("dynamo.keepWhatIf", keep),
    );
}

class Graphs {
    readonly texts = new ReadOnlyTexts(SCHEME);
    private newest: WhatIfBody | undefined;

    /** Reports the end of a changed trace. */
    async report(body: WhatIfBody): Promise<void> {
        this.newest = body;
        const text = body.difference === undefined
            ? vscode.l10n.t("The what-if graph of {0} [{1}] equals the program's.", body.function, body.compileId)
            : vscode.l10n.t("The what-if graph of {0} [{1}] differs from the program's.", body.function, body.compileId);
        if ((await showInformation(text, COMPARE)) === COMPARE) {
            await this.open(body);
        }
    }

    /** Opens both graphs of the newest changed trace. If that trace is held, its graph is the graph so far. */
    async compare(): Promise<void> {
        const session = vscode.debug.activeDebugSession;
        try {
            const asked = session?.type === DEBUG_TYPE ? await requestWhatIf(session) : this.newest;
            if (asked === undefined) {
                throw new Error(vscode.l10n.t("No trace has been changed. At a stop in a trace, set a variable or jump to another line first."));
            }
            await this.open(asked);
        } catch (problem) {
            void showInformation(errorText(problem));
        }
    }

    private async open(body: WhatIfBody): Promise<void> {
        const changed = this.texts.add(`${vscode.l10n.t("what-if")}.py`, body.graph);
        const name = `${body.function} [${body.compileId}]`;
        if (body.programGraph === undefined) {
            await vscode.window.showTextDocument(changed, { preview: true, viewColumn: vscode.ViewColumn.Beside });
            void showInformation(vscode.l10n.t("Continue the trace of {0} to complete the program's own graph.", name));
            return;
        }
        const programs = this.texts.add(`${vscode.l10n.t("the program's graph")}.py`, body.programGraph);
        await vscode.commands.executeCommand("vscode.diff", programs, changed, vscode.l10n.t("{0}: program ↔ what-if", name));
    }
}

/** Makes the call run the graph of the changed trace. */
async function keep(): Promise<void> {
    const item = vscode.debug.activeStackItem;
    try {
        if (stoppedFrame() === undefined || item === undefined) {
            throw new Error(vscode.l10n.t("Apply changes at a stop in the changed trace."));
        }
        await requestKeep(item.session, { threadId: item.threadId });
    } catch (problem) {
        void showInformation(errorText(problem));
    }
}
