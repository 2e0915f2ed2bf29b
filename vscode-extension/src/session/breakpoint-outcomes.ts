/** Notes of each line breakpoint whether it is bound, or why not, and how often it stopped. Without VS Code's API. */

import type { DebugProtocol } from "@vscode/debugprotocol";

import { MISSED_EVENT, type MissedEventBody } from "./structures.js";

/** A line breakpoint as the debugger knows it. */
export interface Outcome {
    path: string;
    /** The line that the user chose, from 1. */
    line: number;
    id?: number;
    isBound: boolean;
    /** Why it is not bound, or where it stops instead of its line. */
    message?: string;
    /** Why it never stopped, known when the program ends. */
    reason?: string;
    stops: number;
    /** Whether it has a condition, a hit count or a log message, so that it need not stop when its line is reached. */
    isSelective: boolean;
}

export class BreakpointOutcomes {
    private readonly byPath = new Map<string, Outcome[]>();
    private readonly asked = new Map<number, DebugProtocol.SetBreakpointsArguments>();

    /** Reads a message that the editor sends. */
    request(message: DebugProtocol.ProtocolMessage): void {
        const request = message as DebugProtocol.SetBreakpointsRequest;
        if (request.type === "request" && request.command === "setBreakpoints") {
            this.asked.set(request.seq, request.arguments);
        }
    }

    /** Reads a message that the debugger sends. */
    answer(message: DebugProtocol.ProtocolMessage): void {
        if (message.type === "response") {
            this.response(message as DebugProtocol.Response);
        } else if (message.type === "event") {
            this.event(message as DebugProtocol.Event);
        }
    }

    at(path: string, line: number): Outcome | undefined {
        return this.byPath.get(path)?.find((each) => each.line === line);
    }

    /** Breakpoints that never stopped, except conditional ones without a known reason. */
    neverStopped(): Outcome[] {
        return this.all().filter(({ stops, isSelective, reason }) => stops === 0 && (!isSelective || reason !== undefined));
    }

    private response(response: DebugProtocol.Response): void {
        if (response.command === "setBreakpoints") {
            const wanted = this.asked.get(response.request_seq);
            this.asked.delete(response.request_seq);
            if (response.success && wanted?.source.path !== undefined) {
                this.set(wanted.source.path, wanted.breakpoints ?? [], (response as DebugProtocol.SetBreakpointsResponse).body.breakpoints);
            }
        } else if (response.command === "stackTrace" && response.success) {
            this.stoppedAt((response as DebugProtocol.StackTraceResponse).body.stackFrames[0]);
        }
    }

    /** Counts a stop at the top frame's line: a step may end at a breakpoint without naming it. */
    private stoppedAt(top: DebugProtocol.StackFrame | undefined): void {
        const found = top?.source?.path === undefined ? undefined : this.at(top.source.path, top.line);
        if (found?.stops === 0) {
            found.stops = 1;
        }
    }

    private event({ event, body }: DebugProtocol.Event): void {
        if (event === "breakpoint") {
            const { breakpoint } = body as DebugProtocol.BreakpointEvent["body"];
            const found = this.all().find(({ id }) => id !== undefined && id === breakpoint.id);
            if (found !== undefined) {
                take(found, breakpoint);
            }
        } else if (event === MISSED_EVENT) {
            for (const { path, line, reason } of (body as MissedEventBody).breakpoints) {
                const found = this.at(path, line);
                if (found !== undefined) {
                    found.reason = reason;
                }
            }
        } else if (event === "stopped") {
            for (const hit of (body as DebugProtocol.StoppedEvent["body"]).hitBreakpointIds ?? []) {
                const found = this.all().find(({ id }) => id === hit);
                if (found !== undefined) {
                    found.stops += 1;
                }
            }
        }
    }

    private all(): Outcome[] {
        return [...this.byPath.values()].flat();
    }

    private set(path: string, wanted: DebugProtocol.SourceBreakpoint[], answers: DebugProtocol.Breakpoint[]): void {
        const made = wanted.map(({ line, condition, hitCondition, logMessage }, index): Outcome => {
            const known = this.at(path, line)?.stops ?? 0;
            const isSelective = [condition, hitCondition, logMessage].some((text) => text !== undefined && text !== "");
            const outcome: Outcome = { path, line, isBound: false, stops: known, isSelective };
            const answer = answers[index];
            if (answer !== undefined) {
                take(outcome, answer);
            }
            return outcome;
        });
        this.byPath.set(path, made);
    }
}

function take(outcome: Outcome, { id, verified, message }: DebugProtocol.Breakpoint): void {
    outcome.isBound = verified;
    delete outcome.message;
    Object.assign(outcome, id === undefined ? {} : { id }, message === undefined ? {} : { message });
}
