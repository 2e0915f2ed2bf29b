/** The numbers about all elements of a tensor. */

import type { TensorStatistics } from "../session/structures.js";
import { localized } from "../localized.js";
import { make } from "./elements.js";

/** Names and numbers as a list, and what they are of; `all` is the button that has them computed of every element. */
export function statisticsOf(found: TensorStatistics, shape: number[], all: HTMLElement): Node[] {
    const infs = found.positiveInfs + found.negativeInfs;
    const rows: [string, string | undefined, string | undefined][] = [
        ["min", found.minimum, undefined],
        ["max", found.maximum, undefined],
        ["mean", found.mean, undefined],
        ["std", found.deviation, undefined],
        [localized("zeros"), counted(found.zeros), undefined],
        ["NaN", counted(found.nans), found.nans > 0 ? "nan" : undefined],
        ["Inf", counted(infs), infs > 0 ? "inf" : undefined],
    ];
    const list = make("dl");
    for (const [name, value, mark] of rows) {
        if (value !== undefined) {
            list.append(make("div", {}, make("dt", {}, name), make("dd", mark === undefined ? {} : { class: mark }, value)));
        }
    }
    const total = shape.reduce((product, size) => product * size, 1);
    const of = {
        all: localized("Of all {0} elements; min to std of the finite ones.", counted(total)),
        sample: `${localized("Of {0} of {1} elements, taken at random; min to std of the finite ones.", counted(found.count), counted(total))} `,
        beginning: localized("Of the first {0} of {1} elements: more would take too long.", counted(found.count), counted(total)),
    }[found.of];
    return [list, make("p", { class: "note" }, of, ...(found.of === "sample" ? [all] : []))];
}

function counted(number: number): string {
    return number.toLocaleString("en");
}
