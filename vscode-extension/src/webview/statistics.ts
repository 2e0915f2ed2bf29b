/** The statistics of a tensor. */

import type { TensorStatistics } from "../session/structures.js";
import { localized } from "../localized.js";
import { make } from "./elements.js";

/** Goes to the element at an index. */
type GoTo = (index: number[]) => void;

/**
 * Returns a list of names and numbers, and a note on which elements they cover. `all` is the button that computes them
 * for every element. A click on the minimum, the maximum or the count of NaN calls `goTo`.
 */
export function statisticsOf(found: TensorStatistics, shape: number[], all: HTMLElement, goTo: GoTo): Node[] {
    const infs = found.positiveInfs + found.negativeInfs;
    const rows: [string, string | undefined, string?, (string | undefined)?][] = [
        ["min", found.minimum, "minimum"],
        ["max", found.maximum, "maximum"],
        ["mean", found.mean],
        ["std", found.deviation],
        [localized("zeros"), counted(found.zeros)],
        ["NaN", counted(found.nans), "nan", found.nans > 0 ? "nan" : undefined],
        ["Inf", counted(infs), "inf", infs > 0 ? "inf" : undefined],
    ];
    const list = make("dl");
    for (const [name, value, place = "", mark] of rows) {
        if (value !== undefined) {
            const index = found.places?.[place];
            const shown = index === undefined ? value : linkTo(index, name, value, goTo);
            list.append(make("div", {}, make("dt", {}, name), make("dd", mark === undefined ? {} : { class: mark }, shown)));
        }
    }
    const total = shape.reduce((product, size) => product * size, 1);
    const of = {
        all: localized("All {0} elements. Min to std use finite elements only.", counted(total)),
        sample: `${localized("{0} of {1} elements, sampled at random. Min to std use finite elements only.", counted(found.count), counted(total))} `,
        beginning: localized("The first {0} of {1} elements only: reading more takes too long.", counted(found.count), counted(total)),
    }[found.of];
    return [list, make("p", { class: "note" }, of, ...(found.of === "sample" ? [all] : []))];
}

function linkTo(index: number[], name: string, value: string, goTo: GoTo): HTMLElement {
    const link = make("button", { class: "link", title: localized("Go to the first {0}, at [{1}]", name, index.join(", ")) }, value);
    link.addEventListener("click", () => {
        goTo(index);
    });
    return link;
}

function counted(number: number): string {
    return number.toLocaleString("en");
}
