/** Draws the histogram of a tensor. */

import uPlot from "uplot";

import type { TensorHistogram } from "../session/structures.js";
import { localized } from "../localized.js";
import { byId, isTicked, themeColour } from "./elements.js";

const HEIGHT = 180;
const BARS = uPlot.paths.bars?.({ size: [0.95, 100] });

let shown: uPlot | undefined;
let last: TensorHistogram | undefined;

/** Draws a histogram into `#histogram`, or says that there is none. */
export function drawHistogram(histogram: TensorHistogram | undefined): void {
    const place = byId("histogram");
    shown?.destroy();
    shown = undefined;
    last = histogram;
    place.replaceChildren();
    if (histogram === undefined) {
        place.textContent = localized("No finite elements.");
        return;
    }
    const { low, high, counts } = histogram;
    const width = (high - low) / counts.length;
    const middles = counts.map((_, at) => low + (at + 0.5) * width);
    const isLogarithmic = isTicked("logarithmic");
    place.setAttribute("aria-label", localized("Histogram from {0} to {1}, {2} bars, the highest {3}", low, high, counts.length, Math.max(...counts)));
    shown = new uPlot(options(place.clientWidth, width, [low, high], isLogarithmic), [middles, counts.map((count) => (isLogarithmic && count === 0 ? null : count))], place);
}

/** Redraws the histogram when the theme, the size or the chosen scale changes. */
export function followHistogram(): void {
    byId("logarithmic").addEventListener("change", redrawHistogram);
    new MutationObserver(redrawHistogram).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    new ResizeObserver(redrawHistogram).observe(byId("side"));
}

function redrawHistogram(): void {
    drawHistogram(last);
}

function options(width: number, bar: number, [low, high]: [number, number], isLogarithmic: boolean): uPlot.Options {
    const axis = { stroke: themeColour("foreground"), grid: { stroke: themeColour("panel-border"), width: 1 }, ticks: { show: false } };
    const drawn: uPlot.Series = { label: localized("elements"), fill: themeColour("charts-blue"), stroke: themeColour("charts-blue"), width: 0, points: { show: false }, value: (_plot, value: number | null) => value?.toLocaleString("en") ?? "" };
    if (BARS !== undefined) {
        drawn.paths = BARS;
    }
    // uPlot declares its enumeration of scales only as a type.
    // eslint-disable-next-line @typescript-eslint/no-unsafe-enum-assignment
    const y: uPlot.Scale = isLogarithmic ? { distr: 3 } : { range: (_plot, _low, top) => [0, top * 1.05] };
    return {
        width: Math.max(width, 200),
        height: HEIGHT,
        padding: [8, 12, 0, 0],
        cursor: { drag: { x: false, y: false }, y: false },
        legend: { live: true, markers: { show: false } },
        scales: { x: { time: false, range: [low, high] }, y },
        series: [{ label: localized("from … to"), value: (_plot, value) => interval(value, bar) }, drawn],
        axes: [{ ...axis, size: 30 }, { ...axis, size: 60 }],
    };
}

function interval(middle: number | null, bar: number): string {
    return middle === null ? "" : `${Number((middle - bar / 2).toPrecision(4))} … ${Number((middle + bar / 2).toPrecision(4))}`;
}
