/** The page of log messages: one chart for each message, which plots its expressions over the hits. */

import "./translation.js";

import uPlot from "uplot";

import { localized } from "../localized.js";
import { byId, make, themeColour } from "./elements.js";
import type { Logged } from "./messages.js";

declare function acquireVsCodeApi(): { postMessage(message: string): void };

const HEIGHT = 240;
const COLOURS = ["blue", "orange", "green", "red", "purple", "yellow", "foreground"];

interface Chart {
    place: HTMLElement;
    note: HTMLElement;
    names: string;
    plot: uPlot;
}

const charts = new Map<string, Chart>();
let last: Logged[] = [];

function draw(all: Logged[]): void {
    last = all;
    byId("empty").hidden = all.length > 0;
    const keys = new Set(all.map((logged) => logged.key));
    for (const [key, chart] of charts) {
        if (!keys.has(key)) {
            chart.plot.destroy();
            chart.place.remove();
            charts.delete(key);
        }
    }
    for (const logged of all) {
        const data: uPlot.AlignedData = [logged.hits, ...Object.values(logged.series)];
        const chart = chartOf(logged, data);
        chart.plot.setData(data);
        chart.note.textContent = Object.entries(logged.notFinite)
            .map(([name, { count, first }]) => localized("{0}: {1} × NaN or Inf, first at hit {2}.", name, count, first))
            .join(" ");
    }
}

/** The chart of a message; a new chart if the message's expressions have changed. */
function chartOf(logged: Logged, data: uPlot.AlignedData): Chart {
    const names = Object.keys(logged.series).join("\n");
    const before = charts.get(logged.key);
    if (before?.names === names) {
        return before;
    }
    before?.plot.destroy();
    before?.place.remove();
    const note = make("p", { class: "nan-note" });
    const place = make("section", { "aria-label": localized("Plot of {0}", logged.title) }, make("h2", {}, logged.title));
    byId("plots").append(place);
    const plot = new uPlot(options(place.clientWidth, Object.keys(logged.series)), data, place);
    place.append(note);
    const chart = { place, note, names, plot };
    charts.set(logged.key, chart);
    return chart;
}

function options(width: number, names: string[]): uPlot.Options {
    const axis = { stroke: themeColour("foreground"), grid: { stroke: themeColour("panel-border"), width: 1 }, ticks: { show: false } };
    const drawn = names.map((label, at): uPlot.Series => {
        const stroke = themeColour(`charts-${COLOURS[at % COLOURS.length] ?? "blue"}`);
        return { label, stroke, width: 1.5, value: (_plot, value: number | null) => (value === null ? "" : String(value)) };
    });
    return {
        width: Math.max(width, 240),
        height: HEIGHT,
        padding: [8, 12, 0, 0],
        scales: { x: { time: false } },
        series: [{ label: localized("hit"), value: (_plot, value: number | null) => value?.toString() ?? "" }, ...drawn],
        axes: [{ ...axis, size: 30 }, { ...axis, size: 60 }],
    };
}

/** Redraws all charts after a change of theme or width. */
function drawAnew(): void {
    for (const { plot, place } of charts.values()) {
        plot.destroy();
        place.remove();
    }
    charts.clear();
    draw(last);
}

window.addEventListener("message", ({ data }: MessageEvent<Logged[]>) => {
    draw(data);
});
window.addEventListener("resize", drawAnew);
new MutationObserver(drawAnew).observe(document.body, { attributes: true, attributeFilter: ["class"] });
acquireVsCodeApi().postMessage("ready");
