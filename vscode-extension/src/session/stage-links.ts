/** Which parts of a compile's stages belong together: what a part was made from, and what was made from it. */

import type { ExploredBody, Part, Place } from "./structures.js";

/** A part of a stage, with the places of its stage's table. */
export interface LinkedPart {
    id: string;
    stage: string;
    part: Part;
    /** The user's lines that it computes. */
    lines: Place[];
    /** Those that called them. */
    callers: Place[];
}

/** Lines of a document that belong to one of the user's lines, by its number among these. */
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

    /** The parts that a line of the user's became, that of what it calls included. */
    ofLine(path: string, line: number): LinkedPart[] {
        const isThere = (place: Place): boolean => place.path === path && place.line === line;
        const found = [...this.parts.values()].filter(({ lines, callers }) => lines.some(isThere) || callers.some(isThere));
        return this.known(this.became(found.map(({ id }) => id)));
    }

    /** The part of a stage that a line is in. */
    at(stage: string, line: number): LinkedPart | undefined {
        return [...this.parts.values()].find((each) => each.stage === stage && each.part.first <= line && line <= each.part.last);
    }

    /** What a part was made from, and what was made from it, itself included. */
    counterparts(part: LinkedPart): LinkedPart[] {
        const above = closure([part.id], (id) => this.parts.get(id)?.part.parents ?? []);
        return this.known([...above, ...this.became([part.id])]);
    }

    /** The ranges of a stage by the first of the user's lines that each computes. */
    numberedIn(stage: string): NumberedRange[] {
        const inStage = [...this.parts.values()].filter((each) => each.stage === stage);
        return inStage.flatMap(({ part: { first, last }, lines: [line] }) => {
            const number = line === undefined ? undefined : this.numbered().get(keyOf(line));
            return number === undefined ? [] : [{ number, first, last }];
        });
    }

    /** The lines of one of the user's files that are computed. */
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

    private became(ids: string[]): Set<string> {
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
