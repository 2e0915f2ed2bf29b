/** Which rows of a tensor the table shows, and in which order: a click on a column sorts, the filter leaves rows out. */

import { byId, field, make } from "./elements.js";
import { localized } from "../localized.js";
import type { Wanted } from "./messages.js";

export class RowOrder {
    private column: number | undefined;
    private isDescending = false;

    /** `changed` shows the rows anew, from the first; it takes the column to go to. */
    constructor(private readonly changed: (column: number) => void) {
        byId("rows-with").addEventListener("change", () => {
            changed(0);
        });
    }

    /** What a request for elements says about it. */
    get wanted(): Pick<Wanted, "sortColumn" | "isDescending" | "rowsWith"> {
        const rowsWith = field("rows-with").value.trim();
        const sorted = this.column === undefined ? {} : { sortColumn: this.column, isDescending: this.isDescending };
        return { ...sorted, ...(rowsWith === "" ? {} : { rowsWith }) };
    }

    /** Whether rows stand where they do in the tensor. */
    get isPlain(): boolean {
        return Object.keys(this.wanted).length === 0;
    }

    /** Shows how many rows the filter leaves. */
    say(total: number | undefined): void {
        const isFiltered = this.wanted.rowsWith !== undefined && total !== undefined;
        byId("rows-left").textContent = isFiltered ? localized("{0} rows", total.toLocaleString("en")) : "";
    }

    /** Sorts by a column: the largest first, then the smallest, then as in the tensor. */
    sortBy(column: number): void {
        if (this.column !== column) {
            this.column = column;
            this.isDescending = true;
        } else if (this.isDescending) {
            this.isDescending = false;
        } else {
            this.column = undefined;
        }
        this.changed(column);
    }

    /** Shows all rows as they are in the tensor. */
    reset(): void {
        if (!this.isPlain) {
            this.column = undefined;
            field("rows-with").value = "";
            this.changed(0);
        }
    }

    /** The header of a column. */
    header(column: number): HTMLElement {
        const isSorted = column === this.column;
        const arrow = !isSorted ? "" : this.isDescending ? " ▼" : " ▲";
        const order = !isSorted ? {} : { "aria-sort": this.isDescending ? "descending" : "ascending" };
        const title = localized("Sort the rows by column {0}", column);
        return make("th", { scope: "col", role: "columnheader", "data-sort": column, title, ...order }, `${column}${arrow}`);
    }
}
