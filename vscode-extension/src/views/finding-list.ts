/** Lists the findings of a session's compiles, each with its line. Without VS Code's API. */

import type { Compile, CompiledFunction, CudaGraph, Place } from "../session/requests.js";
import { localized } from "../localized.js";

/** How many characters of a row a side bar of usual width shows, beside the name of a file. */
const MOST_CHARACTERS = 40;

/** A fact about a line of the user's program, such as a graph break. */
export interface Finding {
    /** "Graph break: Data-dependent branching" */
    title: string;
    /** Causes, effects and hints, one each. */
    details: string[];
    place: Place;
    severity: "error" | "warning" | "info";
    /** Whether the finding comes from a record, so that the language server can try its fixes. */
    isRecorded: boolean;
    /** The lines that may set the value that changed. */
    setAt?: Place[];
}

/** Returns the findings of one compile in the order: failed, recompiled, broken, specialized, CUDA graphs. */
export function findingsOf(compiled: CompiledFunction, compile: Compile): Finding[] {
    const found: Finding[] = [];
    const add = (title: string, place: Place | undefined, severity: Finding["severity"], details: (string | undefined)[]): void => {
        const where = place ?? compiled.place;
        if (where !== undefined) {
            const texts = [...details.filter((text) => text !== undefined && text !== ""), localized("In {0} [{1}]", compile.name, compile.id)];
            found.push({ title, details: texts as string[], place: where, severity, isRecorded: false });
        }
    };
    if (compile.state === "failed") {
        add(localized("Compile failed: {0}", firstLine(compile.problem ?? localized("torch reports no reason"))), undefined, "error", []);
    }
    for (const failure of compile.failures ?? []) {
        const { valueThen, valueNow } = failure;
        // In the words of a record: a finding that both report is then shown once.
        const values = valueThen === undefined || valueNow === undefined ? undefined : localized("A guard of [{0}] failed (then {1}, now {2})", failure.compileId, valueThen, valueNow);
        add(localized("Recompiled: {0}", failure.text ?? failure.expression), failure.place, "warning", [values, failure.hint]);
    }
    for (const found of compile.breaks) {
        add(localized("Graph break: {0}", found.reason), found.place, "warning", [found.explanation, found.effect, ...(found.hints ?? [])]);
    }
    for (const found of compile.specializations ?? []) {
        add(localized("Specialized: {0}", found.expression), found.place, "info", []);
    }
    costlyCudaGraphs(compile).forEach((met) => {
        add(localized("CUDA graph {0}: {1}", met.outcome, met.text ?? ""), met.place, "info", []);
    });
    return found;
}

/**
 * Merges findings with the same title and line: the first one gets the details of all. A session and its record say the
 * same in other words: a detail that another one contains is left out.
 */
export function merged(findings: readonly Finding[]): Finding[] {
    const known = new Map<string, Finding>();
    for (const finding of findings) {
        const key = `${finding.title}\n${finding.place.path}\n${finding.place.line}`;
        const first = known.get(key);
        if (first === undefined) {
            known.set(key, { ...finding, details: [...finding.details] });
        } else {
            const details = [...new Set([...first.details, ...finding.details])];
            first.details = details.filter((text) => !details.some((other) => other !== text && other.includes(withoutIn(text))));
            first.isRecorded ||= finding.isRecorded;
            if (first.setAt === undefined && finding.setAt !== undefined) {
                first.setAt = finding.setAt;
            }
        }
    }
    const order = ["error", "warning", "info"];
    return [...known.values()].sort((one, other) => order.indexOf(one.severity) - order.indexOf(other.severity));
}

/** Shortens "In f [0/1]" to "f [0/1]", as it is in a list of several compiles. */
function withoutIn(detail: string): string {
    return /^\S+ (\S.* \[\d+\/\d+\])$/.exec(detail)?.[1] ?? detail;
}

/**
 * Splits a title into its kind and its cause. A row of the side bar has room only for the cause. A long cause is cut
 * off between words.
 */
export function shortTitle(title: string): { kind: string; cause: string } {
    const [, kind = "", whole = title] = /^([A-Z][\w ]*): (.+)/.exec(title) ?? [];
    if (whole.length <= MOST_CHARACTERS) {
        return { kind, cause: whole };
    }
    const start = whole.slice(0, MOST_CHARACTERS);
    const blank = start.lastIndexOf(" ");
    const end = blank > MOST_CHARACTERS / 2 ? blank : MOST_CHARACTERS - 1;
    return { kind, cause: `${whole.slice(0, end)}…` };
}

/** Returns the costly events of CUDA graphs: no plain recordings, and no consequences of a skipped forward pass. */
function costlyCudaGraphs(compile: Compile): CudaGraph[] {
    return (compile.cudaGraphs ?? []).filter((met) => met.outcome !== "recorded" && met.cause !== "forward");
}

function firstLine(text: string): string {
    return text.split("\n", 1)[0] ?? "";
}
