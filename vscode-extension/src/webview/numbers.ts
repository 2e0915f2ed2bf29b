/** Numbers as pages show them. Knows nothing of the page. */

const WHOLE_PIXELS = 116;

/** The numbers from `start` on, below `stop`. */
export function numbers(start: number, stop: number): number[] {
    return Array.from({ length: Math.max(0, stop - start) }, (_, at) => start + at);
}

/** A number with so many significant digits; as it is with 0 digits, and what is not a finite number. */
export function shortened(text = "…", digits = 0): string {
    const number = Number(text);
    return digits === 0 || !Number.isFinite(number) || text.trim() === "" ? text : String(Number(number.toPrecision(digits)));
}

/** The width of a column that shows so many digits. */
export function widthOf(digits: number): number {
    return digits === 0 ? WHOLE_PIXELS : 64 + 8 * digits;
}
