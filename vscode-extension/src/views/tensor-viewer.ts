/**
 * "View Tensor": a page with the elements, statistics, histogram and picture of a tensor, chosen in the Variables pane
 * or by an expression. The page requests only the parts that it shows. At the next stop it evaluates the expression
 * again.
 */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { showError } from "../notifications.js";
import { requestTensor } from "../session/requests.js";
import { countStops, errorText, evaluated, stoppedFrame, type Evaluated, type StoppedFrame } from "../session/stopped-frame.js";
import type { ToExtension, ToPage } from "../webview/messages.js";
import { openPage } from "./page.js";
import { tensorPage } from "./tensor-page.js";

/** The argument of a command in the menu of a variable. */
interface VariableInMenu {
    sessionId: string | undefined;
    variable: DebugProtocol.Variable;
}

/** Registers `dynamo.viewTensor` (of a variable) and `dynamo.viewExpression`. */
export function registerTensorViewer(extension: vscode.Uri): vscode.Disposable {
    const viewVariable = ({ variable }: VariableInMenu): void => {
        const frame = neededFrame();
        if (frame !== undefined) {
            const viewed = { ...frame, reference: variable.variablesReference };
            new TensorViewer(extension, variable.evaluateName ?? variable.name, viewed, variable.evaluateName);
        }
    };
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.viewTensor", viewVariable),
        vscode.commands.registerCommand("dynamo.viewExpression", () => viewExpression(extension)),
        countStops(),
    );
}

async function viewExpression(extension: vscode.Uri): Promise<void> {
    const frame = neededFrame();
    if (frame === undefined) {
        return;
    }
    const editor = vscode.window.activeTextEditor;
    const selected = editor === undefined ? "" : editor.document.getText(editor.selection);
    const expression = await vscode.window.showInputBox({
        title: vscode.l10n.t("View Tensor"),
        prompt: vscode.l10n.t("An expression in the selected frame"),
        value: selected,
        // An open page may take the focus back late, which must not close this box.
        ignoreFocusOut: true,
    });
    if (expression?.trim()) {
        try {
            new TensorViewer(extension, expression.trim(), await evaluated(expression.trim(), frame), expression.trim());
        } catch (problem) {
            void showError(errorText(problem));
        }
    }
}

/** Returns the selected frame; shows a message if there is none. */
function neededFrame(): StoppedFrame | undefined {
    const frame = stoppedFrame();
    if (frame === undefined) {
        void showError(vscode.l10n.t("A tensor can be viewed while the program is stopped and a frame is selected."));
    }
    return frame;
}

class TensorViewer {
    private readonly panel: vscode.WebviewPanel;
    private readonly registrations: vscode.Disposable[];

    /** `expression` is evaluated at the next stop; undefined if no expression gives this tensor. */
    constructor(
        extension: vscode.Uri,
        private readonly name: string,
        private viewed: Evaluated,
        private readonly expression: string | undefined,
    ) {
        this.panel = openPage(extension, "dynamo.tensor", name, "tensor", tensorPage());
        this.registrations = [
            this.panel.webview.onDidReceiveMessage((message: ToExtension) => this.take(message)),
            vscode.debug.onDidChangeActiveStackItem((item) => this.follow(item)),
            vscode.debug.onDidTerminateDebugSession((session) => {
                if (session.id === this.viewed.session.id) {
                    this.say({ kind: "stale", problem: vscode.l10n.t("The program has ended: these values are from its last stop.") });
                }
            }),
        ];
        this.panel.onDidDispose(() => {
            vscode.Disposable.from(...this.registrations).dispose();
        });
    }

    private say(message: ToPage): void {
        void this.panel.webview.postMessage(message);
    }

    private async take(message: ToExtension): Promise<void> {
        if (message.kind === "ready") {
            this.say({ kind: "show", name: this.name, stop: "" });
            return;
        }
        const { session, frameId, reference } = this.viewed;
        const { id, wanted } = message;
        try {
            this.say({ kind: "answer", id, body: await requestTensor(session, { ...wanted, variablesReference: reference, frameId }) });
        } catch (problem) {
            this.say({ kind: "refusal", id, problem: errorText(problem) });
        }
    }

    /** Updates the page after a step or in another frame, where the expression may give another tensor, or none. */
    private async follow(item: vscode.DebugThread | vscode.DebugStackFrame | undefined): Promise<void> {
        const frame = stoppedFrame();
        const { session, frameId, stop } = this.viewed;
        if (frame === undefined || item?.session.id !== session.id || (frame.frameId === frameId && frame.stop === stop)) {
            return;
        }
        if (this.expression === undefined) {
            this.say({ kind: "stale", problem: vscode.l10n.t("The program has continued: these values are from its last stop.") });
            return;
        }
        try {
            this.viewed = await evaluated(this.expression, frame);
            this.say({ kind: "show", name: this.name, stop: "" });
        } catch (problem) {
            this.say({ kind: "stale", problem: vscode.l10n.t("From an earlier stop: {0}", errorText(problem)) });
        }
    }
}
