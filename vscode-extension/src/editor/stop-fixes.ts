/** Offers fixes at a stop at a graph break or a recompile: as links above the stopped line, and under Ctrl+. there. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { answer, askUntilFound } from "./ask-until-found.js";
import { fixableStop, mayHaveFixes, type FixableStop } from "./fixable-stop.js";
import { fixLinks } from "./fix-links.js";

const PYTHON_FILES: vscode.DocumentSelector = { language: "python", scheme: "file" };
/** The kind of the language server's quick fixes. */
const KIND = vscode.CodeActionKind.QuickFix.append("torchCompile");
const APPLY = "dynamo.applyStopFix";

const RESUMING = new Set(["continue", "next", "stepIn", "stepOut", "stepBack", "reverseContinue", "goto", "restart", "terminate", "disconnect"]);

/** A fix, and the line of the finding. */
interface FoundFix {
    fix: vscode.CodeAction;
    line: number;
}

class StopFixes implements vscode.CodeLensProvider, vscode.CodeActionProvider {
    private readonly changed = new vscode.EventEmitter<void>();
    private stop: FixableStop | undefined;
    private fixes: FoundFix[] = [];
    /** Counts stops and resumes, so that a late answer can be recognized. */
    private stops = 0;
    private isAsking = false;
    /** Whether the record changed since the last question. */
    private isStale = false;

    readonly onDidChangeCodeLenses = this.changed.event;

    /** Handles a stop. The language server reads the record later, so ask it repeatedly until it has a fix. */
    async take(session: vscode.DebugSession, body: DebugProtocol.StoppedEvent["body"]): Promise<void> {
        this.forget();
        const { stops } = this;
        const isOver = (): boolean => stops !== this.stops;
        if (mayHaveFixes(body)) {
            await askUntilFound(async () => {
                const stop = this.stop ?? (await fixableStop(session, body));
                if (!isOver()) {
                    this.stop = stop;
                    await this.refresh();
                }
                return isOver() || this.fixes.length > 0;
            }, isOver);
        }
    }

    forget(): void {
        this.stops += 1;
        this.stop = undefined;
        this.fixes = [];
        this.changed.fire();
    }

    /** Requests the fixes again: the language server reads the record while the program writes it. */
    async refresh(): Promise<void> {
        this.isStale = true;
        if (this.isAsking) {
            return;
        }
        this.isAsking = true;
        while (this.isStale && this.stop !== undefined) {
            this.isStale = false;
            const { stop } = this;
            const found = await Promise.all(stop.named.map((at) => answer(fixesAt(at), [])));
            if (stop === this.stop) {
                this.fixes = [...new Map(found.flat().map((one) => [one.fix.title, one])).values()];
                this.changed.fire();
            }
        }
        this.isAsking = false;
    }

    provideCodeLenses(document: vscode.TextDocument): vscode.CodeLens[] {
        const { stop } = this;
        if (stop?.uri.toString() !== document.uri.toString()) {
            return [];
        }
        const at = new vscode.Range(stop.line, 0, stop.line, 0);
        const links = fixLinks(this.fixes.map(({ fix }) => fix));
        return links.map(({ fix, isTrial }) => new vscode.CodeLens(at, { title: linkTitle(fix, isTrial), command: APPLY, arguments: [fix] }));
    }

    /** Offers the fixes at the stopped line if their finding is at another line. */
    provideCodeActions(document: vscode.TextDocument, range: vscode.Range): vscode.CodeAction[] {
        const { stop } = this;
        const isHere = stop?.uri.toString() === document.uri.toString() && range.start.line <= stop.line && stop.line <= range.end.line;
        return isHere && !this.isAsking ? this.fixes.filter(({ line }) => line !== stop.line).map(({ fix }) => fix) : [];
    }
}

function linkTitle(fix: vscode.CodeAction, isTrial: boolean): string {
    return isTrial ? vscode.l10n.t("Try it first") : `$(lightbulb) ${fix.title}`;
}

/** Returns the language server's fixes for a line. */
async function fixesAt({ uri, range }: vscode.Location): Promise<FoundFix[]> {
    const found = await vscode.commands.executeCommand<vscode.CodeAction[] | undefined>("vscode.executeCodeActionProvider", uri, range, KIND.value);
    return (found ?? []).filter(({ kind }) => kind !== undefined && KIND.contains(kind)).map((fix) => ({ fix, line: range.start.line }));
}

/** Registers the links and `dynamo.applyStopFix`, which takes a fix. */
export function registerStopFixes(): vscode.Disposable {
    const fixes = new StopFixes();
    return vscode.Disposable.from(
        vscode.languages.registerCodeLensProvider(PYTHON_FILES, fixes),
        vscode.languages.registerCodeActionsProvider(PYTHON_FILES, fixes, { providedCodeActionKinds: [vscode.CodeActionKind.QuickFix] }),
        vscode.languages.onDidChangeDiagnostics(() => void fixes.refresh()),
        vscode.commands.registerCommand(APPLY, async ({ edit, command }: vscode.CodeAction) => {
            if (edit !== undefined) {
                await vscode.workspace.applyEdit(edit);
            }
            if (command !== undefined) {
                await vscode.commands.executeCommand(command.command, ...((command.arguments ?? []) as unknown[]));
            }
        }),
        vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
            createDebugAdapterTracker: (session): vscode.DebugAdapterTracker => ({
                onWillReceiveMessage: (message: DebugProtocol.Request): void => {
                    if (RESUMING.has(message.command)) {
                        fixes.forget();
                    }
                },
                onDidSendMessage: (message: DebugProtocol.StoppedEvent): void => {
                    if (message.type === "event" && message.event === "stopped") {
                        void fixes.take(session, message.body);
                    }
                },
                onWillStopSession: (): void => {
                    fixes.forget();
                },
            }),
        }),
    );
}
