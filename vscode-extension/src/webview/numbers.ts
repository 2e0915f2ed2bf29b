/** Formats numbers for pages. Knows nothing of the page. */

const WHOLE_PIXELS = 116;

/** The integers from `start` up to `stop`, without `stop`. */
export function numbers(start: number, stop: number): number[] {
    return Array.from({ length: Math.max(0, stop - start) }, (_, at) => start + at);
}

/** A number with this many significant digits; unchanged with 0 digits, or if it is not finite. */
export function shortened(text = "…", digits = 0): string {
    const number = Number(text);
    return digits === 0 || !Number.isFinite(number) || text.trim() === "" ? text : String(Number(number.toPrecision(digits)));
}

/** The width of a column that shows this many digits. */
export function widthOf(digits: number): number {
    return digits === 0 ? WHOLE_PIXELS : 64 + 8 * digits;
}
