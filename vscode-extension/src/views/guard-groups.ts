/** Groups the checks that belong to one guard. Knows nothing of VS Code's API. */

import type { Guard } from "../session/requests.js";

/**
 * Neighbours of the same type, on the same source, from the same line make one group: for a tensor torch checks, besides
 * the tensor itself, that half a dozen attributes are not there.
 */
export function groupedGuards(guards: readonly Guard[]): [Guard, ...Guard[]][] {
    const groups: [Guard, ...Guard[]][] = [];
    for (const guard of guards) {
        const last = groups.at(-1);
        if (last !== undefined && guard.source !== undefined && keyOf(last[0]) === keyOf(guard)) {
            last.push(guard);
        } else {
            groups.push([guard]);
        }
    }
    return groups;
}

function keyOf({ type, source, place }: Guard): string {
    return JSON.stringify([type, source, place?.path, place?.line]);
}
