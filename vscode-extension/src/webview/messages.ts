/** The messages between the extension and its pages. */

import type { ComparedLine, TensorArguments, TensorBody } from "../session/structures.js";

/** A page's request for a part of the tensor. The extension adds which tensor it is. */
export type Wanted = Omit<TensorArguments, "variablesReference" | "expression" | "frameId">;

export type ToExtension = { kind: "ready" } | { kind: "ask"; id: number; wanted: Wanted };

export type ToPage =
    /** A new tensor, or a new stop: the page requests everything again. */
    | { kind: "show"; name: string; stop: string }
    /** The tensor no longer exists; the page keeps the last values. */
    | { kind: "stale"; problem: string }
    | { kind: "answer"; id: number; body: TensorBody }
    | { kind: "refusal"; id: number; problem: string };

/** The numbers that one log message has printed. The arrays of all series are as long as `hits`. */
export interface Logged {
    key: string;
    title: string;
    /** The numbers of the hits, from 1 on. */
    hits: number[];
    series: Record<string, (number | null)[]>;
    /** For each series, how many values were NaN or infinite, and the hit of the first. */
    notFinite: Record<string, { count: number; first: number }>;
}

/** A compared call, for its page. */
export interface ShownComparison {
    title: string;
    lines: ComparedLine[];
}

/** Says that the page of a compared call has loaded, or which line the user wants to open. */
export type FromComparison = "ready" | { path: string; line: number };
