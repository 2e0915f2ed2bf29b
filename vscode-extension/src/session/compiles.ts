/** The compiles of the focused debug session, and which of them is selected. The last answer outlives the session. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import {
    COMPILES_CHANGED_EVENT,
    requestCompiles,
    requestGraph,
    requestGuards,
    type Compile,
    type CompiledFunction,
    type Graph,
    type Guards,
} from "./requests.js";

/** A graph of a compile; without an index, the newest. */
export interface Selection {
    compileId: string;
    graph?: number;
}

const QUIET_MILLISECONDS = 80;
const COMPILING_MILLISECONDS = 250; // Answering slows the program down, so ask rarely.

export class Compiles implements vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<void>();
    private readonly registrations: vscode.Disposable[];
    private session: vscode.DebugSession | undefined;
    private functions: CompiledFunction[] = [];
    private chosen: Selection | undefined;
    private timer: NodeJS.Timeout | undefined;

    /** Fires when views should ask again. */
    readonly onDidChange = this.changed.event;

    constructor() {
        this.registrations = [
            vscode.debug.onDidStartDebugSession((session) => {
                if (session.parentSession === undefined || this.session === undefined) {
                    this.follow(session);
                }
            }),
            vscode.debug.onDidChangeActiveDebugSession((session) => {
                if (session !== undefined && session.id !== this.session?.id) {
                    this.follow(session);
                }
            }),
            vscode.debug.onDidTerminateDebugSession((session) => {
                this.setSession(session.id === this.session?.id ? undefined : this.session);
            }),
            vscode.debug.onDidReceiveDebugSessionCustomEvent(({ session, event }) => {
                if (event === COMPILES_CHANGED_EVENT && session.id === this.session?.id) {
                    this.changeSoon(COMPILING_MILLISECONDS);
                }
            }),
            vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
                createDebugAdapterTracker: (): vscode.DebugAdapterTracker => ({
                    onDidSendMessage: (message: DebugProtocol.Event): void => {
                        if (message.type === "event" && message.event === "stopped") {
                            this.changeSoon();
                        }
                    },
                }),
            }),
        ];
    }

    dispose(): void {
        clearTimeout(this.timer);
        vscode.Disposable.from(...this.registrations, this.changed).dispose();
    }

    /** The session that is followed, if it runs. */
    get activeSession(): vscode.DebugSession | undefined {
        return this.session;
    }

    /** The functions that were compiled; rejects if the request fails. */
    async all(): Promise<CompiledFunction[]> {
        if (this.session !== undefined) {
            this.functions = await requestCompiles(this.session);
            void vscode.commands.executeCommand("setContext", "dynamo.hasCompiles", this.functions.length > 0);
        }
        return this.functions;
    }

    /** The graph of the selected compile, or undefined when nothing is selected or the session has ended. */
    async graph(): Promise<Graph | undefined> {
        const compile = await this.selectedCompile();
        // The graph that is being traced has the next number.
        const newest = compile?.state === "tracing" ? compile.graphs.length : compile?.graphs.at(-1)?.index;
        const index = this.chosen?.graph ?? newest;
        return this.session === undefined || compile === undefined || index === undefined
            ? undefined
            : requestGraph(this.session, compile.id, index);
    }

    /** The guards of the selected compile, or undefined when nothing is selected or the session has ended. */
    async guards(): Promise<Guards | undefined> {
        const compile = await this.selectedCompile();
        return this.session === undefined || compile === undefined ? undefined : requestGuards(this.session, compile.id);
    }

    /** The title of the selected compile: "0/0  compute", or "" when nothing is selected. */
    async title(): Promise<string> {
        const compile = await this.selectedCompile();
        return compile === undefined ? "" : `${compile.id}  ${compile.name}`;
    }

    select(selection: Selection): void {
        this.chosen = selection;
        this.changed.fire();
    }

    refresh(): void {
        this.changed.fire();
    }

    /** The compile that the user selected in the tree, else the compile that is being traced, else the newest. */
    private async selectedCompile(): Promise<Compile | undefined> {
        const compiles = (await this.all()).flatMap((compiled) => compiled.compiles);
        return (
            compiles.find((compile) => compile.id === this.chosen?.compileId) ??
            compiles.findLast((compile) => compile.state === "tracing") ??
            compiles.at(-1)
        );
    }

    private follow(session: vscode.DebugSession): void {
        if (session.type === DEBUG_TYPE) {
            this.setSession(session);
            [this.functions, this.chosen] = [[], undefined];
            this.changed.fire();
        }
    }

    /** Shows or hides the commands that need a session. The views keep their contents. */
    private setSession(session: vscode.DebugSession | undefined): void {
        this.session = session;
        void vscode.commands.executeCommand("setContext", "dynamo.hasSession", session !== undefined);
    }

    /** Announces a change after a pause, so that several quick steps cause one request. */
    private changeSoon(milliseconds = QUIET_MILLISECONDS): void {
        clearTimeout(this.timer);
        this.timer = setTimeout(this.changed.fire.bind(this.changed), milliseconds);
    }
}
