/** The table of a tensor's elements. It makes and requests only visible cells, so the tensor may have any size. */

import type { TensorBody } from "../session/structures.js";
import { cellOf } from "./cells.js";
import { byId, make } from "./elements.js";
import { goalOf } from "./keys.js";
import { numbers, widthOf } from "./numbers.js";
import type { RowOrder } from "./row-order.js";
import { Scrolling, type Pair } from "./scrolling.js";

const MOST_ASKED = 9000;

/** A page of elements, which begins at a row and a column. */
interface Page { row: number; column: number; body: TensorBody }

export type Fetch = (startRow: number, rowCount: number, startColumn: number, columnCount: number) => Promise<TensorBody>;
export type OnActive = (row: number, column: number, text: string | undefined) => void;

export class Table {
    private readonly scroller = byId("scroller");
    private readonly cells = byId("cells");
    private readonly scrolling: Scrolling;
    private counts: Pair = [0, 0];
    private active: Pair = [0, 0];
    private page: Page | undefined;
    private generation = 0;
    private asked = "";
    private digits = 0;

    /** `fetch` requests elements in the `order` of rows. `onActive` is called with the active cell and its text. */
    constructor(
        private readonly order: RowOrder,
        private readonly fetch: Fetch,
        private readonly onActive: OnActive,
    ) {
        this.scrolling = new Scrolling(this.scroller, byId("sizer"), () => {
            this.draw();
        });
        this.scroller.addEventListener("keydown", (event) => {
            this.press(event);
        });
        this.cells.addEventListener("click", (event) => {
            const { row, column, sort } = (event.target as HTMLElement).dataset;
            if (sort !== undefined) {
                this.order.sortBy(Number(sort));
            } else if (row !== undefined && column !== undefined) {
                this.go(Number(row), Number(column));
            }
        });
    }

    /** Shows a tensor or another part of it. Keeps the scroll position if the sizes are the same. */
    show(counts: Pair): void {
        this.generation += 1;
        this.page = undefined;
        this.asked = "";
        if (counts.join() !== this.counts.join()) {
            this.setCounts(counts);
        }
        this.draw();
    }

    private setCounts(counts: Pair): void {
        this.counts = counts;
        this.active = [0, 0];
        this.scrolling.reset(counts);
        this.scroller.setAttribute("aria-rowcount", String(counts[0]));
        this.scroller.setAttribute("aria-colcount", String(counts[1]));
    }

    /** Shows numbers with this many significant digits, in columns as wide as they need; all digits with 0. */
    setDigits(digits: number): void {
        this.digits = digits;
        this.scrolling.setWidth(widthOf(digits));
        this.go(...this.active);
    }

    /** Activates a cell, and scrolls to it. */
    go(row: number, column: number): void {
        const [rows, columns] = this.counts;
        this.active = [Math.max(0, Math.min(row, rows - 1)), Math.max(0, Math.min(column, columns - 1))];
        this.scrolling.reveal(this.active);
        this.draw();
    }

    private press(event: KeyboardEvent): void {
        const goal = goalOf(event, this.active, this.counts, Math.max(1, this.scrolling.seen[0] - 2));
        if (event.key === "Enter") {
            this.order.sortBy(this.active[1]);
        }
        if (goal !== undefined) {
            event.preventDefault();
            this.go(...goal);
        }
    }

    private draw(): void {
        const { first, seen } = this.scrolling;
        const [rows, columns] = ([0, 1] as const).map((way) => numbers(first[way], Math.min(first[way] + seen[way], this.counts[way])));
        if (rows === undefined || columns === undefined) {
            return;
        }
        const header = make("tr", {}, make("th"), ...columns.map((column) => this.order.header(column)));
        const shown = rows.map((row) => {
            const cells = columns.map((column) => cellOf(row, column, this.text(row, column), this.digits, row === this.active[0] && column === this.active[1]));
            return make("tr", { role: "row", "aria-rowindex": row + 1 }, make("th", { scope: "row" }, this.rowNumber(row)?.toString() ?? "…"), ...cells);
        });
        this.cells.replaceChildren(make("thead", {}, header), make("tbody", {}, ...shown));
        this.onActive(this.rowNumber(this.active[0]) ?? 0, this.active[1], this.text(...this.active));
        if (rows.length > 0 && columns.length > 0) {
            void this.load([first[0], first[1]], [rows.length, columns.length]);
        }
    }

    /** The index in the tensor of the row at a position of the table. */
    private rowNumber(place: number): number | undefined {
        return this.order.isPlain ? place : this.page?.body.rows?.[place - this.page.row];
    }

    private text(row: number, column: number): string | undefined {
        return this.page?.body.elements?.[row - this.page.row]?.[column - this.page.column];
    }

    /** Requests the visible elements, and as many around them, if they are not loaded yet. */
    private async load(first: Pair, seen: Pair): Promise<void> {
        const ends = [this.text(...first), this.text(first[0] + seen[0] - 1, first[1] + seen[1] - 1)];
        const around = 9 * seen[0] * seen[1] <= MOST_ASKED ? 1 : 0;
        const start: Pair = [Math.max(0, first[0] - around * seen[0]), Math.max(0, first[1] - around * seen[1])];
        const key = [this.generation, ...start, ...seen].join();
        if (key === this.asked || ends.every((text) => text !== undefined)) {
            return;
        }
        this.asked = key;
        try {
            const body = await this.fetch(start[0], (1 + 2 * around) * seen[0], start[1], (1 + 2 * around) * seen[1]);
            if (key === this.asked) {
                this.page = { row: start[0], column: start[1], body };
                if ((body.rowTotal ?? this.counts[0]) !== this.counts[0]) {
                    this.setCounts([body.rowTotal ?? 0, this.counts[1]]);
                }
                this.draw();
            }
        } catch {
            // `fetch` has already reported the reason.
        }
    }
}
