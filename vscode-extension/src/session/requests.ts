/** Sends the custom requests about compiles, as docs/custom-requests.md documents them. */

import type { DebugSession } from "vscode";

import {
    COMPARISON,
    COMPILES,
    ENTRIES,
    FORGET,
    GO_TO,
    GRAPH,
    GUARDS,
    KEEP,
    LISTING,
    PATCH,
    RECORD_CALL,
    RUN_BACK,
    STAGES,
    TENSOR,
    TIMELINE,
    UNPATCH,
    WHAT_IF,
    type ComparisonBody,
    type CompiledFunction,
    type EntriesBody,
    type ForgetArguments,
    type ForgetBody,
    type GoToSnapshotArguments,
    type Graph,
    type GraphArguments,
    type Guards,
    type ExploredBody,
    type GuardsArguments,
    type KeepArguments,
    type ListingArguments,
    type PatchArguments,
    type PatchBody,
    type RecordCallArguments,
    type RecordCallBody,
    type RunBackArguments,
    type StagesArguments,
    type StagesBody,
    type TensorArguments,
    type TensorBody,
    type TimelineArguments,
    type TimelineBody,
    type UnpatchArguments,
    type UnpatchBody,
    type WhatIfBody,
} from "./structures.js";

export { COMPILES_CHANGED_EVENT, WHAT_IF_EVENT } from "./structures.js";
export type * from "./structures.js";

/** Every function that Dynamo has compiled, oldest first. */
export async function requestCompiles(session: DebugSession): Promise<CompiledFunction[]> {
    return ((await session.customRequest(COMPILES, {})) as { functions: CompiledFunction[] }).functions;
}

/** A graph of a compile; while Dynamo traces, the graph so far. */
export async function requestGraph(session: DebugSession, compileId: string, index: number): Promise<Graph> {
    const wanted: GraphArguments = { compileId, index };
    return (await session.customRequest(GRAPH, wanted)) as Graph;
}

/** The guards of a compile; while Dynamo traces, the guards so far. */
export async function requestGuards(session: DebugSession, compileId: string): Promise<Guards> {
    const wanted: GuardsArguments = { compileId };
    return (await session.customRequest(GUARDS, wanted)) as Guards;
}

/** Torch's cache entries. The first such request starts to count calls. */
export async function requestEntries(session: DebugSession): Promise<EntriesBody> {
    return (await session.customRequest(ENTRIES, {})) as EntriesBody;
}

/** Removes one cache entry, or all entries of a function; rejects while the function is being compiled. */
export async function requestForget(session: DebugSession, wanted: ForgetArguments): Promise<ForgetBody> {
    return (await session.customRequest(FORGET, wanted)) as ForgetBody;
}

/** The explored compiles; if one compile is wanted, also the parts of its stages. */
export async function requestStages(session: DebugSession, wanted: StagesArguments): Promise<ExploredBody[]> {
    return ((await session.customRequest(STAGES, wanted)) as StagesBody).compiles;
}

/** Saves the call of a compiled function in which a thread is stopped. */
export async function requestRecordCall(session: DebugSession, wanted: RecordCallArguments): Promise<RecordCallBody> {
    return (await session.customRequest(RECORD_CALL, wanted)) as RecordCallBody;
}

/** The newest call whose compiled result differs. */
export async function requestComparison(session: DebugSession): Promise<ComparisonBody> {
    return (await session.customRequest(COMPARISON, {})) as ComparisonBody;
}

/** Shows generated code as statements or as instructions. The stacks of stopped threads change. */
export async function requestListing(session: DebugSession, form: ListingArguments["form"]): Promise<void> {
    const wanted: ListingArguments = { form };
    await session.customRequest(LISTING, wanted);
}

/** Replaces an instruction of generated code, from its next call on. */
export async function requestPatch(session: DebugSession, wanted: PatchArguments): Promise<PatchBody> {
    return (await session.customRequest(PATCH, wanted)) as PatchBody;
}

/** Reverts all patches of generated code. */
export async function requestUnpatch(session: DebugSession): Promise<UnpatchBody> {
    const wanted: UnpatchArguments = {};
    return (await session.customRequest(UNPATCH, wanted)) as UnpatchBody;
}

/** A part of a tensor of a stopped thread. */
export async function requestTensor(session: DebugSession, wanted: TensorArguments): Promise<TensorBody> {
    return (await session.customRequest(TENSOR, wanted)) as TensorBody;
}

/** The statements that the trace of a held thread has visited. */
export async function requestTimeline(session: DebugSession, wanted: TimelineArguments): Promise<TimelineBody> {
    return (await session.customRequest(TIMELINE, wanted)) as TimelineBody;
}

/** Goes to a snapshot of that timeline. */
export async function requestGoTo(session: DebugSession, wanted: GoToSnapshotArguments): Promise<void> {
    await session.customRequest(GO_TO, wanted);
}

/** Goes back to the origin of a variable or node; rejects if the trace has no such statement. */
export async function requestRunBack(session: DebugSession, wanted: RunBackArguments): Promise<void> {
    await session.customRequest(RUN_BACK, wanted);
}

/** The newest changed trace, and how it differs from the program's own. */
export async function requestWhatIf(session: DebugSession): Promise<WhatIfBody> {
    return (await session.customRequest(WHAT_IF, {})) as WhatIfBody;
}

/** Makes the call run the graph of the changed trace in which its thread is stopped. */
export async function requestKeep(session: DebugSession, wanted: KeepArguments): Promise<void> {
    await session.customRequest(KEEP, wanted);
}
