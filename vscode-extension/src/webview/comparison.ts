/** The page of a compared call: a table of its lines; a click on a heading sorts. Runs in a webview of VS Code. */

import "./translation.js";

import type { ComparedLine } from "../session/structures.js";
import { COLUMNS, outcomeOf, sortedLines, type Column } from "./compared-lines.js";
import { byId, make } from "./elements.js";
import type { FromComparison, ShownComparison } from "./messages.js";

declare function acquireVsCodeApi(): { postMessage(message: FromComparison): void };

const vscode = acquireVsCodeApi();
let shown: ShownComparison = { title: "", lines: [] };
let sorted: Column | undefined;
let isRising = false;

/** The columns that are not empty. */
function columns(): Column[] {
    return COLUMNS.filter((column) => shown.lines.some((line) => column.text(line) !== ""));
}

function draw(): void {
    byId("verdict").textContent = shown.title;
    const lines = sorted === undefined ? shown.lines : sortedLines(shown.lines, sorted, isRising);
    const header = make("tr", {}, ...columns().map(heading));
    byId("lines").replaceChildren(make("thead", {}, header), make("tbody", {}, ...lines.map(row)));
}

function heading(column: Column): HTMLElement {
    const isSorted = column === sorted;
    const button = make("button", { title: column.explained }, `${column.title}${isSorted ? (isRising ? " ↑" : " ↓") : ""}`);
    button.addEventListener("click", () => {
        isRising = isSorted ? !isRising : column.rises;
        sorted = column;
        draw();
    });
    return make("th", { scope: "col", "aria-sort": isSorted ? (isRising ? "ascending" : "descending") : "none" }, button);
}

function row(line: ComparedLine): HTMLElement {
    const cells = columns().map((column) => make("td", { class: typeof column.key(line) === "number" ? "number" : "source" }, column.text(line)));
    const made = make("tr", { class: outcomeOf(line), tabindex: 0, title: line.operations.join(", ") }, ...cells);
    const open = (): void => {
        vscode.postMessage({ path: line.path, line: line.line });
    };
    made.addEventListener("click", open);
    made.addEventListener("keydown", ({ key }) => {
        if (key === "Enter") {
            open();
        }
    });
    return made;
}

window.addEventListener("message", ({ data }: MessageEvent<ShownComparison>) => {
    shown = data;
    draw();
});
vscode.postMessage("ready");
