/** The custom DAP requests about compiles, as README.md ("Custom requests") documents them. */

import type { DebugProtocol } from "@vscode/debugprotocol";
import type { DebugSession } from "vscode";

/** Sent by the server, once it was asked for `dynamoCompiles`, when the answer would be another one than before. */
export const COMPILES_CHANGED = "dynamoCompilesChanged";

/** A place in the user's code, 1-based. */
export interface Place {
    path: string;
    line: number;
    column?: number;
}

export interface Attempt {
    number: number;
    /** Why the analysis started again after this attempt; missing for the last one. */
    restarted?: string;
}

export interface GraphSummary {
    index: number;
    name: string;
    nodeCount: number;
    /** Nodes that compute something. */
    operationCount: number;
}

export interface GraphBreak {
    reason: string;
    place?: Place;
    explanation?: string;
    hints?: string[];
    /** What becomes of the function: where it resumes, or that it is skipped. */
    effect?: string;
    /** Torch's id of this kind of break, and its page about it. */
    id?: string;
    link?: string;
}

/** Why an earlier compile of the same frame did not serve. */
export interface GuardFailure {
    compileId: string;
    expression: string;
    /** What is another than it was, as a person says it; missing where the expression is that. */
    text?: string;
    reason: string;
    /** The line that had installed the guard. */
    place?: Place;
    valueThen?: string;
    valueNow?: string;
}

/** A symbolic size that became a constant. */
export interface Specialization {
    expression: string;
    place?: Place;
}

export interface Compile {
    /** Dynamo's compile id: "0/0", "0/1" after a recompile. */
    id: string;
    /** The frame: the function, or "fn (resumed at line 8)". */
    name: string;
    place?: Place;
    state: "tracing" | "compiled" | "skipped" | "failed";
    /** Why it was skipped, or failed. */
    problem?: string;
    seconds?: number;
    backend?: string;
    failures?: GuardFailure[];
    attempts: Attempt[];
    graphs: GraphSummary[];
    breaks: GraphBreak[];
    specializations?: Specialization[];
}

export interface CompiledFunction {
    name: string;
    place?: Place;
    compiles: Compile[];
}

export interface GraphNode {
    /** The name in the graph: "add_1". */
    name: string;
    /** FX's: "placeholder", "call_function", "output" ... */
    operation: string;
    target: string;
    /** What comes out: "f32[3, 4]". */
    value?: string;
    /** What it computes, as Python: "x + 1". */
    expression?: string;
    place?: Place;
}

export interface Graph {
    name: string;
    nodes: GraphNode[];
    /** False while Dynamo is still tracing: more may follow. */
    isFinal: boolean;
    /** The readable code of the graph, for the DAP request `source`. */
    source?: DebugProtocol.Source;
}

export interface Guard {
    expression: string;
    /** The condition as a person says it; missing where the expression is that. */
    text?: string;
    /** Dynamo's guard type: "TENSOR_MATCH". */
    type: string;
    /** What is guarded, as the user wrote it: "self.weight". */
    source?: string;
    /** The user line that caused it. */
    place?: Place;
}

/** The guards of a compile. */
export interface Guards {
    guards: Guard[];
    /** How many there are; `guards` is cut off at a bound. */
    count: number;
    /** False while Dynamo is still tracing. */
    isFinal: boolean;
}

/** Every function that Dynamo has compiled, oldest first. */
export async function requestCompiles(session: DebugSession): Promise<CompiledFunction[]> {
    return ((await session.customRequest("dynamoCompiles", {})) as { functions: CompiledFunction[] }).functions;
}

/** A graph of a compile, as far as it has been traced. */
export async function requestGraph(session: DebugSession, compileId: string, index: number): Promise<Graph> {
    return (await session.customRequest("dynamoGraph", { compileId, index })) as Graph;
}

/** The guards of a compile, as far as it has been traced. */
export async function requestGuards(session: DebugSession, compileId: string): Promise<Guards> {
    return (await session.customRequest("dynamoGuards", { compileId })) as Guards;
}
