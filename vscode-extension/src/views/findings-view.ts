/**
 * The view "Findings": graph breaks, recompiles, failures and differences, each with its line, cause and fixes. They
 * come from the language server's diagnostics and from the debug session that the views follow.
 */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import type { Compiles } from "../session/compiles.js";
import { stopAt } from "../editor/commands.js";
import type { Compile } from "../session/requests.js";
import { onDisk } from "../session/stopped-frame.js";
import { findingsOf, merged, shortTitle, type Finding } from "./finding-list.js";
import { openPlace, placeText } from "./links.js";
import { makeNode, PullTree, type TreeNode } from "./pull-tree.js";
import { recordedFindings } from "./recorded-findings.js";

const QUIET_MILLISECONDS = 120;

/** The beginning of a stop's description at a wrong value. */
const WRONG = /^(NaN|Inf|Mismatch)/;

/** A finding of a stop, which stays until the same program starts again. */
interface StoppedFinding extends Finding {
    program: string;
}

/** The node of a finding, for the node's inline commands. */
interface FindingNode extends TreeNode {
    finding?: Finding;
}

/**
 * Makes the view. Registers `dynamo.tryFindingFixes`, which tries the fixes of a node's line, and
 * `dynamo.stopWhereFindingIsSet`, which sets breakpoints at the lines that set the changed value.
 */
export function createFindingsView(compiles: Compiles): vscode.Disposable {
    const findings = new Findings(compiles);
    const tree = new PullTree("dynamo.findings", findings, async (view) => {
        const found = await findings.all();
        view.badge = found.length === 0 ? undefined : { value: found.length, tooltip: vscode.l10n.t("Findings of torch.compile") };
        return found.map(findingNode);
    });
    return vscode.Disposable.from(
        findings,
        tree,
        vscode.commands.registerCommand("dynamo.tryFindingFixes", async ({ finding }: FindingNode) => {
            if (finding !== undefined) {
                const { path, line } = finding.place;
                await vscode.commands.executeCommand("dynamo.tryFix", { uri: vscode.Uri.file(path).toString(), line: line - 1 });
            }
        }),
        vscode.commands.registerCommand("dynamo.stopWhereFindingIsSet", ({ finding }: FindingNode) => {
            stopAt((finding?.setAt ?? []).map(({ path, line }) => ({ uri: vscode.Uri.file(path), line: line - 1 })));
        }),
    );
}

/** The present findings. Fires an event when they may have changed. */
class Findings implements vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<void>();
    private readonly registrations: vscode.Disposable[];
    private timer: NodeJS.Timeout | undefined;
    private stopped: StoppedFinding[] = [];

    readonly onDidChange = this.changed.event;

    constructor(private readonly compiles: Compiles) {
        const changeSoon = (): void => {
            clearTimeout(this.timer);
            this.timer = setTimeout(() => {
                this.changed.fire();
            }, QUIET_MILLISECONDS);
        };
        this.registrations = [
            vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
                createDebugAdapterTracker: (session): vscode.DebugAdapterTracker => ({
                    onDidSendMessage: (message: DebugProtocol.StoppedEvent): void => {
                        if (message.type === "event" && message.event === "stopped" && WRONG.test(message.body.description ?? "")) {
                            void this.note(session, message.body).then(changeSoon);
                        }
                    },
                }),
            }),
            vscode.debug.onDidStartDebugSession((session) => {
                if (session.type === DEBUG_TYPE && session.parentSession === undefined) {
                    this.stopped = this.stopped.filter(({ program }) => program !== programOf(session));
                }
            }),
            compiles.onDidChange(changeSoon),
            vscode.languages.onDidChangeDiagnostics(changeSoon),
            vscode.debug.onDidTerminateDebugSession((session) => {
                if (session.type === DEBUG_TYPE) {
                    changeSoon();
                }
            }),
        ];
    }

    dispose(): void {
        clearTimeout(this.timer);
        vscode.Disposable.from(...this.registrations, this.changed).dispose();
    }

    /** All findings: first those of the session (none if it fails to answer), which are newer than those of a record. */
    async all(): Promise<Finding[]> {
        const functions = await this.compiles.all().catch(() => []);
        const ofSession = functions.flatMap((compiled) =>
            compiled.compiles.flatMap((compile: Compile) => findingsOf(compiled, compile)),
        );
        return merged([...this.stopped, ...ofSession, ...recordedFindings()]);
    }

    /** Keeps a finding for a stop at a NaN or at a line that differs from eager. */
    private async note(session: vscode.DebugSession, body: DebugProtocol.StoppedEvent["body"]): Promise<void> {
        const wanted: DebugProtocol.StackTraceArguments = { threadId: body.threadId ?? 0, levels: 1 };
        const answer = (await session.customRequest("stackTrace", wanted)) as DebugProtocol.StackTraceResponse["body"];
        const [top] = answer.stackFrames;
        const [title = "", ...details] = (body.text ?? "").split("\n");
        if (top?.source?.path !== undefined) {
            const place = { path: onDisk(top.source.path), line: top.line };
            this.stopped.push({ title, details, place, severity: "error", isRecorded: false, program: programOf(session) });
        }
    }
}

/** Returns what a session runs, as a text. Child processes run what their first process runs. */
function programOf(session: vscode.DebugSession): string {
    if (session.parentSession !== undefined) {
        return programOf(session.parentSession);
    }
    const { program, module, args } = session.configuration;
    return JSON.stringify(typeof program === "string" ? [program] : [module ?? session.name, args]);
}

function findingNode(finding: Finding, index: number): TreeNode {
    const id = `finding ${index} ${finding.title} ${placeText(finding.place)}`;
    const short = shortTitle(finding.title);
    const node: FindingNode = makeNode(id, short.cause, finding.severity, {
        description: [short.kind, placeText(finding.place)].filter((part) => part).join(" · "),
        tooltip: [finding.title, ...finding.details].join("\n"),
        children: finding.details.map((text, number) => makeNode(`${id} ${number}`, text, "info")),
    });
    node.item.command = openPlace(finding.place);
    const kind = finding.isRecorded ? "dynamoRecordedFinding" : "dynamoFinding";
    node.item.contextValue = finding.setAt === undefined ? kind : `${kind}Set`;
    node.finding = finding;
    return node;
}
