/** Requests parts of the tensor from the extension. */

import type { TensorBody } from "../session/structures.js";
import type { ToExtension, ToPage, Wanted } from "./messages.js";

declare function acquireVsCodeApi(): { postMessage(message: ToExtension): void };

interface Waiting {
    resolve: (body: TensorBody) => void;
    reject: (problem: Error) => void;
}

const vscode = acquireVsCodeApi();
const waiting = new Map<number, Waiting>();
let last = 0;

/** Requests a part of the tensor; rejects with a readable text. */
export function ask(wanted: Wanted): Promise<TensorBody> {
    last += 1;
    const id = last;
    vscode.postMessage({ kind: "ask", id, wanted });
    return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

/** Receives the extension's messages. Answers go to their requests, all others to `take`. */
export function listen(take: (message: ToPage) => void): void {
    window.addEventListener("message", ({ data }: MessageEvent<ToPage>) => {
        if (data.kind === "answer") {
            waiting.get(data.id)?.resolve(data.body);
            waiting.delete(data.id);
        } else if (data.kind === "refusal") {
            waiting.get(data.id)?.reject(new Error(data.problem));
            waiting.delete(data.id);
        } else {
            take(data);
        }
    });
    vscode.postMessage({ kind: "ready" });
}

/** The text of an error. */
export function textOf(problem: unknown): string {
    return problem instanceof Error ? problem.message : String(problem);
}
