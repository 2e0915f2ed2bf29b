/** Moves between the cells of a table by keys. Knows nothing of the page. */

import type { Pair } from "./scrolling.js";

/** The cell to which a key moves from `active`; undefined for other keys. `page` is the number of visible rows. */
export function goalOf({ key, ctrlKey }: KeyboardEvent, active: Pair, counts: Pair, page: number): Pair | undefined {
    const [row, column] = active;
    const [rows, columns] = counts;
    const goals: Record<string, Pair> = {
        ArrowDown: [row + 1, column],
        ArrowUp: [row - 1, column],
        ArrowRight: [row, column + 1],
        ArrowLeft: [row, column - 1],
        PageDown: [row + page, column],
        PageUp: [row - page, column],
        Home: ctrlKey ? [0, 0] : [row, 0],
        End: ctrlKey ? [rows - 1, columns - 1] : [row, columns - 1],
    };
    return goals[key];
}
