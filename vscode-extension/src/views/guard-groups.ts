/** Groups the checks that belong to one guard. Knows nothing of VS Code's API. */

import type { Guard } from "../session/requests.js";

/**
 * Groups neighbouring checks of the same type, source and line. For a tensor, torch checks the tensor itself, and also
 * that half a dozen attributes are absent.
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
