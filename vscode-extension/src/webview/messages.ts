/** What the extension and its pages say to each other. */

import type { ComparedLine, TensorArguments, TensorBody } from "../session/structures.js";

/** What of the tensor the page wants; which tensor it is, the extension knows. */
export type Wanted = Omit<TensorArguments, "variablesReference" | "expression" | "frameId">;

export type ToExtension = { kind: "ready" } | { kind: "ask"; id: number; wanted: Wanted };

export type ToPage =
    /** There is a tensor, or a new stop: ask for everything again. */
    | { kind: "show"; name: string; stop: string }
    /** The tensor no longer exists; the page keeps the last values. */
    | { kind: "stale"; problem: string }
    | { kind: "answer"; id: number; body: TensorBody }
    | { kind: "refusal"; id: number; problem: string };

/** What one log message has printed, for the page of log messages. The arrays of all series are as long as `hits`. */
export interface Logged {
    key: string;
    title: string;
    /** The numbers of the hits, from 1 on. */
    hits: number[];
    series: Record<string, (number | null)[]>;
    /** Of each series how many values were NaN or infinite, and at which hit first. */
    notFinite: Record<string, { count: number; first: number }>;
}

/** A compared call, for its page. */
export interface ShownComparison {
    title: string;
    lines: ComparedLine[];
}

/** The page of a compared call can be filled, or the user chose a line to open. */
export type FromComparison = "ready" | { path: string; line: number };
