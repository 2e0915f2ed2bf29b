/** The columns of a compared call: the text that they show for a line, and their sort keys. Knows nothing of the page. */

import type { ComparedLine, Deviation } from "../session/structures.js";
import { localized } from "../localized.js";
import { shortened } from "./numbers.js";

const DIGITS = 3;

export interface Column {
    title: string;
    explained: string;
    /** Whether the first click sorts from low to high; differences begin with the largest. */
    rises: boolean;
    key: (line: ComparedLine) => string | number;
    text: (line: ComparedLine) => string;
}

/** The sort key of a difference. An Inf or NaN on one side is larger than any number; unknown differences come last. */
function sizeOf(deviation: Deviation | undefined, part: "largest" | "rmse"): number | undefined {
    return deviation?.largest === undefined ? deviation && Infinity : deviation[part];
}

function numeric(title: string, explained: string, of: (line: ComparedLine) => Deviation | undefined, part: "largest" | "rmse"): Column {
    const key = (line: ComparedLine): number => sizeOf(of(line), part) ?? -1;
    const text = (line: ComparedLine): string => {
        const size = sizeOf(of(line), part);
        return size === undefined ? "" : size === Infinity ? "Inf" : shortened(String(size), DIGITS);
    };
    return { title, explained, rises: false, key, text };
}

export const COLUMNS: Column[] = [
    { title: localized("Line"), explained: localized("Line number in the file"), rises: true, key: ({ line }) => line, text: ({ line }) => String(line) },
    { title: localized("Source"), explained: localized("What the line does"), rises: true, key: ({ text }) => text, text: ({ text }) => text },
    numeric(localized("Max"), localized("Largest difference between the compiled graph and Dynamo's graph"), (line) => line.compiled, "largest"),
    numeric(localized("RMSE"), localized("Root mean square error of the compiled graph against Dynamo's graph"), (line) => line.compiled, "rmse"),
    numeric(localized("Graph"), localized("Largest difference between Dynamo's graph and ordinary Python"), (line) => line.dynamo, "largest"),
    numeric(localized("Gradient"), localized("Largest difference of the line's gradients"), (line) => line.gradient, "largest"),
];

/** Whether results of a line differ. A line that runs only during tracing, such as a line about sizes, has no results. */
export function outcomeOf({ compiled, dynamo, gradient }: ComparedLine): "differs" | "same" | "unknown" {
    const known = [compiled, dynamo, gradient].filter((each) => each !== undefined);
    return known.length === 0 ? "unknown" : known.every((each) => each.same) ? "same" : "differs";
}

/** Sorts the lines by a column. Lines with equal keys keep the order in which the call runs them. */
export function sortedLines(lines: readonly ComparedLine[], { key }: Column, isRising: boolean): ComparedLine[] {
    return [...lines].sort((one, other) => (isRising ? 1 : -1) * compared(key(one), key(other)));
}

function compared(one: string | number, other: string | number): number {
    return one < other ? -1 : one > other ? 1 : 0;
}
