/** What the extension and the page of a tensor say to each other. */

import type { TensorArguments, TensorBody } from "../session/structures.js";

/** What of the tensor the page wants; which tensor it is, the extension knows. */
export type Wanted = Omit<TensorArguments, "variablesReference" | "expression" | "frameId">;

export type ToExtension = { kind: "ready" } | { kind: "ask"; id: number; wanted: Wanted };

export type ToPage =
    /** There is a tensor, or the one of the next stop: everything is to be asked for again. */
    | { kind: "show"; name: string; stop: string }
    /** The tensor is not there any more; what is shown stays. */
    | { kind: "stale"; problem: string }
    | { kind: "answer"; id: number; body: TensorBody }
    | { kind: "refusal"; id: number; problem: string };
