/** The page of a tensor: its table, statistics, histogram and picture. Runs in a webview of VS Code. */

import "./translation.js";

import type { TensorBody } from "../session/structures.js";
import { localized } from "../localized.js";
import { ask, listen, textOf } from "./asking.js";
import { byId, field, make } from "./elements.js";
import { searchBy } from "./finding.js";
import { drawPicture, noteOf } from "./heat-map.js";
import { drawHistogram, followHistogram } from "./histogram.js";
import type { Wanted } from "./messages.js";
import { PICTURES, POINTS, type Kind } from "./picture-kinds.js";
import { RowOrder } from "./row-order.js";
import { SelectionBar } from "./selection.js";
import { statisticsOf } from "./statistics.js";
import { Table } from "./table.js";

let name = "";
let minus = "";
let kind: Kind | undefined;
let kinds = "";

const selection = new SelectionBar(() => {
    showPart();
});
const order = new RowOrder((column) => {
    table.show(selection.sizes);
    table.go(0, column);
});
const table = new Table(
    order,
    async (startRow, rowCount, startColumn, columnCount) => {
        const wanted = { show: "elements", selection: selection.selection, startRow, rowCount, startColumn, columnCount, ...order.wanted } as const;
        const body = await askFor(wanted);
        order.say(body.rowTotal);
        return body;
    },
    (row, column, text) => {
        byId("cell").textContent = text === undefined ? "" : `${name}${selection.indexOf(row, column)} = ${text}`;
    },
);

const goTo = (index: number[]): void => {
    order.reset();
    table.go(...selection.reveal(index));
};
searchBy(askFor, goTo);

/** Requests a part of the tensor, or of its difference from another tensor. */
async function askFor(wanted: Wanted): Promise<TensorBody> {
    try {
        const body = await ask(minus === "" ? wanted : { ...wanted, minus });
        byId("problem").textContent = "";
        return body;
    } catch (problem) {
        byId("problem").textContent = textOf(problem);
        throw problem;
    }
}

/** Shows the whole page of a tensor again. */
async function show(): Promise<void> {
    try {
        await showStatistics(false);
        showPart();
    } catch {
        // The page shows the reason.
    }
}

async function showStatistics(isWhole: boolean): Promise<void> {
    const body = await askFor({ show: "statistics", isWhole });
    byId("text").textContent = body.text;
    byId("note").textContent = body.note ?? "";
    selection.setShape(body.shape);
    offer(body.pictures);
    if (body.statistics !== undefined) {
        const all = make("button", {}, localized("Load All Elements"));
        all.addEventListener("click", () => {
            void showStatistics(true).catch(() => undefined);
        });
        byId("statistics").replaceChildren(...statisticsOf(body.statistics, body.shape, all, goTo));
        drawHistogram(body.statistics.histogram);
    }
}

function offer(pictures: Kind[]): void {
    if (pictures.join() !== kinds) {
        kinds = pictures.join();
        kind = pictures[0];
        document.body.classList.toggle("picture-first", kind !== "map");
        byId("kind").replaceChildren(...pictures.map((each) => make("option", { value: each }, PICTURES[each])));
    }
}

function showPart(): void {
    table.show(selection.sizes);
    void showPicture();
}

async function showPicture(): Promise<void> {
    const shown = kind ?? "map";
    const isImage = shown === "chw" || shown === "hwc";
    const part = selection.forPicture(shown === "map" ? 2 : 3);
    try {
        const { picture } = await ask({ show: "picture", picture: shown, selection: part, width: POINTS[shown], height: POINTS[shown], ...(minus === "" ? {} : { minus }) });
        if (picture !== undefined) {
            drawPicture(picture, isImage, (tile, row, column) => {
                if (shown === "tiles") {
                    selection.choose(3, tile);
                }
                order.reset();
                table.go(row, column);
            });
            byId("picture-note").textContent = noteOf(picture, isImage);
        }
    } catch (problem) {
        byId("picture").replaceChildren();
        byId("legend").replaceChildren();
        byId("picture-note").textContent = textOf(problem);
    }
}

byId("kind").addEventListener("change", () => {
    kind = field("kind").value as Kind;
    void showPicture();
});
byId("digits").addEventListener("change", () => {
    table.setDigits(Number(field("digits").value));
});
byId("minus").addEventListener("change", () => {
    minus = field("minus").value.trim();
    byId("table-title").textContent = minus === "" ? localized("Elements") : localized("Elements of {0} - ({1})", name, minus);
    void show();
});
followHistogram();

listen((message) => {
    if (message.kind === "show") {
        name = message.name;
        byId("name").textContent = name;
        byId("stop").textContent = message.stop;
        document.body.classList.remove("stale");
        void show();
    } else if (message.kind === "stale") {
        byId("stop").textContent = message.problem;
        document.body.classList.add("stale");
    }
});
