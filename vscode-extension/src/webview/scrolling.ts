/**
 * Scrolls over any number of rows and columns. A browser limits the length of a page. Beyond this limit, the scroll bar
 * is scaled, and the wheel scrolls row by row.
 */

export const ROW_PIXELS = 22;
const LONGEST_PIXELS = 8_000_000;
const WHEEL_ROWS = 3;

/** A number for the rows, then one for the columns. */
export type Pair = [number, number];
const WAYS = [0, 1] as const;

export class Scrolling {
    /** The first visible row and column. */
    first: Pair = [0, 0];
    private columnPixels = 116;
    private counts: Pair = [0, 0];

    /** `sizer` gives `scroller` its scroll bars. `moved` is called when other rows or columns become visible. */
    constructor(
        private readonly scroller: HTMLElement,
        private readonly sizer: HTMLElement,
        private readonly moved: () => void,
    ) {
        scroller.addEventListener("scroll", () => {
            this.follow();
        });
        scroller.addEventListener(
            "wheel",
            (event) => {
                this.turn(event);
            },
            { passive: false },
        );
        new ResizeObserver(moved).observe(scroller);
    }

    /** Changes the width of all columns, and goes to the beginning. */
    setWidth(pixels: number): void {
        this.columnPixels = pixels;
        this.sizer.style.setProperty("--column", `${pixels}px`);
        this.reset(this.counts);
    }

    /** Sets the numbers of rows and columns, and goes to the beginning. */
    reset(counts: Pair): void {
        this.counts = counts;
        this.first = [0, 0];
        this.sizer.style.height = `${Math.min(ROW_PIXELS * (counts[0] + 1), LONGEST_PIXELS)}px`;
        this.sizer.style.width = `${Math.min(this.columnPixels * (counts[1] + 1), LONGEST_PIXELS)}px`;
        this.scroller.scrollTo(0, 0);
    }

    /** How many rows and columns are visible, including those that are cut off. */
    get seen(): Pair {
        const { clientHeight, clientWidth } = this.scroller;
        return [Math.ceil(clientHeight / ROW_PIXELS), Math.ceil(clientWidth / this.columnPixels)];
    }

    /** Scrolls just enough to show a row and a column completely. */
    reveal(place: Pair): void {
        for (const way of WAYS) {
            // Without the header, and without the last row or column, which may be cut off.
            const room = Math.max(1, this.seen[way] - 2);
            const first = Math.min(Math.max(this.first[way], place[way] - room + 1), place[way]);
            if (first !== this.first[way]) {
                this.first[way] = first;
                this.moveBar(way);
            }
        }
    }

    /** The range of the scroll bar in pixels, and in rows or columns. */
    private range(way: 0 | 1): Pair {
        const { scrollHeight, clientHeight, scrollWidth, clientWidth } = this.scroller;
        const pixels = way === 0 ? scrollHeight - clientHeight : scrollWidth - clientWidth;
        return [pixels, Math.max(0, this.counts[way] - this.seen[way] + 2)];
    }

    private moveBar(way: 0 | 1): void {
        const [pixels, count] = this.range(way);
        const at = count === 0 ? 0 : Math.round((Math.min(this.first[way], count) / count) * pixels);
        this.scroller.scrollTo(way === 0 ? { top: at } : { left: at });
    }

    /** Follows a move of the scroll bar. Ignores rounding differences, which `moveBar` causes. */
    private follow(): void {
        for (const way of WAYS) {
            const [pixels, count] = this.range(way);
            const at = way === 0 ? this.scroller.scrollTop : this.scroller.scrollLeft;
            const there = pixels <= 0 ? 0 : (at / pixels) * count;
            const hair = Math.max(0.5, (count / Math.max(1, pixels)) * 2);
            if (Math.abs(there - Math.min(this.first[way], count)) > hair) {
                this.first[way] = Math.round(there);
            }
        }
        this.moved();
    }

    private turn(event: WheelEvent): void {
        if (event.ctrlKey || event.deltaY === 0 || ROW_PIXELS * this.counts[0] < LONGEST_PIXELS) {
            return;
        }
        event.preventDefault();
        const [, count] = this.range(0);
        this.first[0] = Math.max(0, Math.min(count, this.first[0] + Math.sign(event.deltaY) * WHEEL_ROWS));
        this.moveBar(0);
        this.moved();
    }
}
