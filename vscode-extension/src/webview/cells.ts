/** The cells of a tensor's table. */

import { make } from "./elements.js";
import { shortened } from "./numbers.js";

/** A cell at a place of the table; `text` is undefined until it is known. */
export function cellOf(row: number, column: number, text: string | undefined, digits: number, isActive: boolean): HTMLElement {
    const kind = text === undefined ? "waits" : text.includes("nan") ? "nan" : text.startsWith("-inf") ? "negative-inf" : text.includes("inf") ? "inf" : "";
    const attributes = { role: "gridcell", class: `${kind}${isActive ? " active" : ""}`, "data-row": row, "data-column": column };
    return make("td", { ...attributes, title: text ?? "", ...(isActive ? { id: "active-cell" } : {}) }, shortened(text, digits));
}
