/**
 * Shows a notification if starting the debug server takes long, and lets the user cancel the start. Once the server
 * runs, it reports the progress of the start itself.
 */

import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";

const PATIENCE_MILLISECONDS = 2000;
const TITLE = vscode.l10n.t("torch.compile debugger");

/** Runs `work` with a signal that aborts it. Returns undefined if the user has cancelled. */
export async function unlessGivenUp<T>(what: string, work: (signal: AbortSignal) => Promise<T>): Promise<T | undefined> {
    const giveUp = new AbortController();
    const waiting = new Waiting(what, () => { giveUp.abort(); });
    try {
        const result = await work(giveUp.signal);
        return giveUp.signal.aborted ? undefined : result;
    } finally {
        waiting.dispose();
    }
}

/** A notification that appears after a while, and disappears with `dispose`. */
class Waiting implements vscode.Disposable {
    private readonly timer: NodeJS.Timeout;
    private over: () => void = () => undefined;
    private readonly end = new Promise<void>((done) => { this.over = done; });

    constructor(what: string, onCancel: () => void) {
        const options = { location: vscode.ProgressLocation.Notification, title: TITLE, cancellable: true };
        this.timer = setTimeout(() => {
            void vscode.window.withProgress(options, (progress, token) => {
                progress.report({ message: what });
                token.onCancellationRequested(onCancel);
                return this.end;
            });
        }, PATIENCE_MILLISECONDS);
    }

    dispose(): void {
        clearTimeout(this.timer);
        this.over();
    }
}

class UntilServerSpeaks implements vscode.DebugAdapterTrackerFactory {
    createDebugAdapterTracker(session: vscode.DebugSession): vscode.DebugAdapterTracker {
        const waiting = new Waiting(vscode.l10n.t("starting the debug server"), () => void vscode.debug.stopDebugging(session));
        const over = (): void => { waiting.dispose(); };
        return { onDidSendMessage: over, onError: over, onExit: over, onWillStopSession: over };
    }
}

/** Registers the notification for a debug server that starts slowly. */
export function registerSlowStart(): vscode.Disposable {
    return vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, new UntilServerSpeaks());
}
