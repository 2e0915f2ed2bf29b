/** Lists a compile's attempts with their results. Without VS Code's API. */

import { localized } from "../localized.js";
import type { Compile } from "../session/requests.js";

/** Returns a row for each attempt; none if there was only one attempt, because the compile's row has its result. */
export function attemptRows(compile: Compile): { label: string; result: string }[] {
    const { attempts } = compile;
    return attempts.length < 2
        ? []
        : attempts.map(({ number, restarted }) => ({
              label: localized("Attempt {0}", number),
              result: restarted === undefined ? lastResult(compile) : localized("restarted: {0}", restarted),
          }));
}

function lastResult({ state, breaks, problem }: Compile): string {
    const [found] = breaks.slice(-1);
    switch (state) {
        case "tracing":
            return localized("not finished");
        case "compiled":
            return found === undefined ? localized("traced to the end") : localized("ended at a graph break: {0}", found.reason);
        case "skipped":
        case "failed":
            return `${state}: ${problem?.split("\n", 1)[0] ?? localized("torch reports no reason")}`;
    }
}
