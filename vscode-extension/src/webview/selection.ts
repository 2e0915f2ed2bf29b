/** The shown part of a tensor with many dimensions: for each dimension an index, or `:` if the dimension is shown. */

import { localized } from "../localized.js";
import { byId, make } from "./elements.js";

/** For each dimension an index, or null if the dimension is shown. */
export type Selection = (number | null)[];

const MOST_SHOWN = 2;

export class SelectionBar {
    private shape: number[] = [];
    private chosen: Selection = [];

    /** `changed` is called when the user has chosen another part. */
    constructor(private readonly changed: () => void) {}

    /** Sets the shape of the tensor. If the shape is the same as before, the selection stays. */
    setShape(shape: number[]): void {
        if (shape.join() !== this.shape.join()) {
            this.shape = shape;
            this.chosen = shape.map((_, number) => (number >= shape.length - MOST_SHOWN ? null : 0));
            this.draw();
        }
    }

    get selection(): Selection {
        return [...this.chosen];
    }

    /** The selection for a picture of this many dimensions: shows the last dimensions. */
    forPicture(dimensions: number): Selection {
        if (dimensions === MOST_SHOWN) {
            return this.selection;
        }
        const first = this.shape.length - dimensions;
        return this.chosen.map((index, number) => (number >= first ? null : (index ?? 0)));
    }

    /** The sizes of the rows and columns that are shown. */
    get sizes(): [number, number] {
        const shown = this.shape.filter((_, number) => this.chosen[number] === null);
        return [shown[0] ?? 1, shown[1] ?? 1];
    }

    /** The index of an element, as Python writes it. */
    indexOf(row: number, column: number): string {
        const places = [row, column];
        const parts = this.chosen.map((index) => index ?? places.shift());
        return parts.length === 0 ? "" : `[${parts.join(", ")}]`;
    }

    /** Chooses an index of a dimension, counted from the end. */
    choose(fromEnd: number, index: number): void {
        const number = this.shape.length - fromEnd;
        if (this.chosen[number] !== undefined && this.chosen[number] !== null) {
            this.chosen[number] = index;
            this.draw();
            this.changed();
        }
    }

    /** Chooses the part in which an element is, and returns its row and column there. */
    reveal(index: number[]): [number, number] {
        const before = this.chosen.join();
        this.chosen = this.chosen.map((chosen, number) => (chosen === null ? null : (index[number] ?? 0)));
        if (this.chosen.join() !== before) {
            this.draw();
            this.changed();
        }
        const [row = 0, column = 0] = index.filter((_, number) => this.chosen[number] === null);
        return [row, column];
    }

    private draw(): void {
        const boxes = this.shape.map((size, number) => this.box(size, number));
        byId("selection").replaceChildren(...(this.shape.length > MOST_SHOWN ? [`${localized("Index")} `, ...boxes] : []));
    }

    private box(size: number, number: number): HTMLElement {
        const text = String(this.chosen[number] ?? ":");
        const input = make("input", { type: "text", value: text, size: 4, "aria-label": localized("Dimension {0}, of {1}", number, size) });
        input.title = localized("Dimension {0}: an index below {1}, or : to show it", number, size);
        input.addEventListener("change", () => {
            this.take(number, input.value);
        });
        input.addEventListener("keydown", (event) => {
            const step = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0;
            const before = this.chosen[number];
            if (step !== 0 && typeof before === "number") {
                event.preventDefault();
                this.take(number, String(before + step));
            }
        });
        return make("span", { class: "dimension" }, input, `/${size}`);
    }

    private take(number: number, text: string): void {
        const size = this.shape[number] ?? 0;
        const shown = this.chosen.filter((index) => index === null).length;
        const before = this.chosen[number];
        if (text.trim() === ":") {
            // At most MOST_SHOWN dimensions are shown: the first of them gets index 0 instead.
            const other = this.chosen.indexOf(null);
            if (before !== null && shown >= MOST_SHOWN) {
                this.chosen[other] = 0;
            }
            this.chosen[number] = null;
        } else if (/^\s*-?\d+\s*$/.test(text)) {
            const index = Number(text);
            this.chosen[number] = Math.min(Math.max(index < 0 ? index + size : index, 0), Math.max(size - 1, 0));
        }
        this.draw();
        byId("selection").querySelectorAll("input")[number]?.focus();
        this.changed();
    }
}
