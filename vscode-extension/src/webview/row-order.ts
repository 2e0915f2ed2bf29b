/** The rows that the table shows, and their order: a click on a column sorts, the filter leaves out rows. */

import { byId, field, make } from "./elements.js";
import { localized } from "../localized.js";
import type { Wanted } from "./messages.js";

export class RowOrder {
    private column: number | undefined;
    private isDescending = false;

    /** `changed` shows the rows again from the first; its argument is the column to go to. */
    constructor(private readonly changed: (column: number) => void) {
        byId("rows-with").addEventListener("change", () => {
            changed(0);
        });
    }

    /** The order and filter, as fields of a request for elements. */
    get wanted(): Pick<Wanted, "sortColumn" | "isDescending" | "rowsWith"> {
        const rowsWith = field("rows-with").value.trim();
        const sorted = this.column === undefined ? {} : { sortColumn: this.column, isDescending: this.isDescending };
        return { ...sorted, ...(rowsWith === "" ? {} : { rowsWith }) };
    }

    /** Whether all rows are shown in the order of the tensor. */
    get isPlain(): boolean {
        return Object.keys(this.wanted).length === 0;
    }

    /** Shows how many rows pass the filter. */
    say(total: number | undefined): void {
        const isFiltered = this.wanted.rowsWith !== undefined && total !== undefined;
        byId("rows-left").textContent = isFiltered ? localized("{0} rows", total.toLocaleString("en")) : "";
    }

    /** Sorts by a column: the first click puts the largest first, the second the smallest; the third unsorts. */
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
