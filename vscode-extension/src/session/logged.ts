/**
 * Collects the numbers that log messages print, hit by hit. The agent reports the values of its own log messages. For
 * log messages in ordinary Python, debugpy only prints a text, so this module compares that text with the log messages
 * of the breakpoints. Lives as long as the extension; a new session discards the numbers of the previous one.
 */

import type { DebugProtocol } from "@vscode/debugprotocol";
import { basename } from "node:path";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import type { Logged } from "../webview/messages.js";
import { numbersIn, valuesIn } from "./logged-numbers.js";
import { LOGGED_EVENT, type LoggedEventBody } from "./structures.js";

const MOST_HITS = 20_000;

export class LoggedValues implements vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<void>();
    private readonly logged = new Map<string, Logged>();
    private readonly registration: vscode.Disposable;

    /** Fires after new numbers. */
    readonly onDidChange = this.changed.event;

    constructor() {
        this.registration = vscode.Disposable.from(
            vscode.debug.onDidStartDebugSession((session) => {
                if (session.type === DEBUG_TYPE && session.parentSession === undefined) {
                    this.logged.clear();
                    this.changed.fire();
                }
            }),
            vscode.debug.onDidReceiveDebugSessionCustomEvent(({ event, body }) => {
                if (event === LOGGED_EVENT) {
                    const { path, line, values } = body as LoggedEventBody;
                    this.add(path, line, new Map(Object.entries(values)));
                }
            }),
            vscode.debug.registerDebugAdapterTrackerFactory(DEBUG_TYPE, {
                createDebugAdapterTracker: (): vscode.DebugAdapterTracker => ({
                    onDidSendMessage: (message: DebugProtocol.Event): void => {
                        if (message.type === "event" && message.event === "output") {
                            this.read((message as DebugProtocol.OutputEvent).body);
                        }
                    },
                }),
            }),
        );
    }

    dispose(): void {
        vscode.Disposable.from(this.registration, this.changed).dispose();
    }

    /** Everything so far. */
    get all(): Logged[] {
        return [...this.logged.values()];
    }

    /** Reads output of debugpy. Skips the agent's log messages, which have a source: an event reports their values. */
    private read({ output, source, category }: DebugProtocol.OutputEvent["body"]): void {
        if (source?.path !== undefined || category === "telemetry") {
            return;
        }
        for (const breakpoint of vscode.debug.breakpoints) {
            if (breakpoint instanceof vscode.SourceBreakpoint && breakpoint.enabled && breakpoint.logMessage?.includes("{")) {
                const { uri, range } = breakpoint.location;
                for (const line of output.split(/\r?\n/)) {
                    const values = valuesIn(line, breakpoint.logMessage);
                    if (values !== undefined) {
                        this.add(uri.fsPath, range.start.line + 1, values);
                    }
                }
            }
        }
    }

    private add(path: string, line: number, values: Map<string, string>): void {
        const numbers = [...values].flatMap(([name, text]) => {
            const found = numbersIn(text);
            return found.map((number, at): [string, number] => [found.length === 1 ? name : `${name}[${at}]`, number]);
        });
        if (numbers.length === 0) {
            return;
        }
        const key = `${path}:${line}`;
        const logged = this.logged.get(key) ?? { key, title: `${basename(path)}:${line}`, hits: [], series: {}, notFinite: {} };
        this.logged.set(key, logged);
        append(logged, new Map(numbers));
        void vscode.commands.executeCommand("setContext", "dynamo.hasLogged", true);
        this.changed.fire();
    }
}

function append(logged: Logged, numbers: Map<string, number>): void {
    const hit = (logged.hits.at(-1) ?? 0) + 1;
    for (const name of numbers.keys()) {
        logged.series[name] ??= logged.hits.map(() => null);
    }
    logged.hits.push(hit);
    for (const [name, values] of Object.entries(logged.series)) {
        const number = numbers.get(name);
        values.push(number !== undefined && Number.isFinite(number) ? number : null);
        if (number !== undefined && !Number.isFinite(number)) {
            const found = (logged.notFinite[name] ??= { count: 0, first: hit });
            found.count += 1;
        }
    }
    if (logged.hits.length > 2 * MOST_HITS) {
        for (const values of [logged.hits, ...Object.values(logged.series)]) {
            values.splice(0, values.length - MOST_HITS);
        }
    }
}
