/** Links each part of a compile's stages with the parts that it was made from, and that were made from it. */

import type { ExploredBody, Part, Place } from "./structures.js";

/** A part of a stage. Its places are looked up in the table of the stage. */
export interface LinkedPart {
    id: string;
    stage: string;
    part: Part;
    /** The user's lines that the part computes. */
    lines: Place[];
    /** The lines that called these lines. */
    callers: Place[];
}

/** A range of a document, and the number of the user's line that it belongs to. */
export interface NumberedRange {
    number: number;
    first: number;
    last: number;
}

export class StageLinks {
    readonly parts = new Map<string, LinkedPart>();
    private numbers: Map<string, number> | undefined;
    private readonly children = new Map<string, string[]>();

    constructor(explored: ExploredBody) {
        for (const stage of explored.stages) {
            const places = (stage.places ?? []).map(({ place }) => place);
            const taken = (indices: number[] | undefined): Place[] => (indices ?? []).flatMap((index) => places[index] ?? []);
            for (const part of stage.parts ?? []) {
                const id = `${stage.id}:${part.name}`;
                this.parts.set(id, { id, stage: stage.id, part, lines: taken(part.lines), callers: taken(part.callers) });
                for (const parent of part.parents ?? []) {
                    this.children.set(parent, [...(this.children.get(parent) ?? []), id]);
                }
            }
        }
    }

    /** The parts that one of the user's lines became, including the parts of functions that it calls. */
    ofLine(path: string, line: number): LinkedPart[] {
        const isThere = (place: Place): boolean => place.path === path && place.line === line;
        const found = [...this.parts.values()].filter(({ lines, callers }) => lines.some(isThere) || callers.some(isThere));
        return this.known(this.descendants(found.map(({ id }) => id)));
    }

    /** The part of a stage that contains a line. */
    at(stage: string, line: number): LinkedPart | undefined {
        return [...this.parts.values()].find((each) => each.stage === stage && each.part.first <= line && line <= each.part.last);
    }

    /** The part itself, the parts that it was made from, and the parts that were made from it. */
    counterparts(part: LinkedPart): LinkedPart[] {
        const above = closure([part.id], (id) => this.parts.get(id)?.part.parents ?? []);
        return this.known([...above, ...this.descendants([part.id])]);
    }

    /** The ranges of a stage, each numbered by the first user line that it computes. */
    numberedIn(stage: string): NumberedRange[] {
        const inStage = [...this.parts.values()].filter((each) => each.stage === stage);
        return inStage.flatMap(({ part: { first, last }, lines: [line] }) => {
            const number = line === undefined ? undefined : this.numbered().get(keyOf(line));
            return number === undefined ? [] : [{ number, first, last }];
        });
    }

    /** The lines of a user's file that some part computes. */
    numberedOf(path: string): NumberedRange[] {
        return [...this.numbered()].flatMap(([key, number]) => {
            const [line = "", ...rest] = key.split(":");
            return rest.join(":") === path ? [{ number, first: Number(line), last: Number(line) }] : [];
        });
    }

    private numbered(): Map<string, number> {
        if (this.numbers === undefined) {
            const lines = [...this.parts.values()].flatMap((each) => each.lines);
            const sorted = lines.sort((one, other) => one.path.localeCompare(other.path) || one.line - other.line);
            this.numbers = new Map([...new Set(sorted.map(keyOf))].map((key, number) => [key, number]));
        }
        return this.numbers;
    }

    private descendants(ids: string[]): Set<string> {
        return closure(ids, (id) => this.children.get(id) ?? []);
    }

    private known(ids: Iterable<string>): LinkedPart[] {
        return [...new Set(ids)].flatMap((id) => this.parts.get(id) ?? []);
    }
}

function keyOf({ path, line }: Place): string {
    return `${line}:${path}`;
}

function closure(ids: string[], following: (id: string) => string[]): Set<string> {
    const found = new Set<string>();
    const waiting = [...ids];
    for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
        if (!found.has(id)) {
            found.add(id);
            waiting.push(...following(id));
        }
    }
    return found;
}
