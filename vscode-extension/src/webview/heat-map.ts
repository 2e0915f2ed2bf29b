/**
 * Draws heat maps and images. Uses a canvas, not the charting library: one call draws a million points, and each point
 * keeps its color at any scale.
 */

import type { TensorBody } from "../session/structures.js";
import { localized } from "../localized.js";
import { byId, make } from "./elements.js";

type Picture = NonNullable<TensorBody["picture"]>;
type Colour = readonly [number, number, number];

const HIGHEST = 252;
const NEGATIVE_INF = 253;
const POSITIVE_INF = 254;
const MARKS: Record<number, Colour> = { [NEGATIVE_INF]: [0, 200, 255], [POSITIVE_INF]: [255, 150, 0], 255: [255, 0, 255] };
/** Colors from low to high that people with any colour vision can distinguish (viridis). */
const RISING: Colour[] = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
/** Colors for a scale with zero in the middle: from blue over grey to red. */
const AROUND_ZERO: Colour[] = [[33, 102, 172], [103, 169, 207], [221, 221, 221], [239, 138, 98], [178, 24, 43]];

export type Chosen = (tile: number, row: number, column: number) => void;

/** Draws a picture into `#picture`. Calls `chosen` with the position of a click. */
export function drawPicture(picture: Picture, isImage: boolean, chosen: Chosen): void {
    const bytes = Uint8Array.from(atob(picture.data), (letter) => letter.charCodeAt(0));
    const palette = paletteOf(picture.low, picture.high);
    const size = picture.width * picture.height;
    const tiles = Array.from({ length: picture.tiles }, (_, tile) => {
        const points = isImage ? Uint8ClampedArray.from(bytes) : coloured(bytes.subarray(tile * size, (tile + 1) * size), palette);
        const canvas = canvasOf(points, picture, isImage);
        canvas.addEventListener("click", (event) => {
            const row = Math.floor((event.offsetY / canvas.clientHeight) * picture.height) * picture.rowStep;
            const column = Math.floor((event.offsetX / canvas.clientWidth) * picture.width) * picture.columnStep;
            chosen(tile, row, column);
        });
        return picture.tiles === 1 ? canvas : make("figure", {}, canvas, make("figcaption", {}, String(tile)));
    });
    const place = byId("picture");
    place.className = picture.tiles === 1 ? "one" : "tiles";
    place.replaceChildren(...tiles);
    byId("legend").replaceChildren(...(isImage ? [] : legend(picture, palette, bytes)));
}

/** Notes on how the picture was made. */
export function noteOf(picture: Picture, isImage: boolean): string {
    const { rowStep, columnStep, isSampled, tileCount, tiles } = picture;
    const sentences = [];
    if (rowStep * columnStep > 1) {
        sentences.push(pointOf(isImage, isSampled, rowStep, columnStep));
    }
    if (tileCount !== undefined) {
        sentences.push(localized("The first {0} of {1}.", tiles, tileCount));
    }
    if (isImage && (picture.low !== 0 || (picture.high !== 1 && picture.high !== 255))) {
        sentences.push(localized("The color scale runs from {0} to {1}.", short(picture.low), short(picture.high)));
    }
    return sentences.join(" ");
}

function pointOf(isImage: boolean, isSampled: boolean | undefined, rows: number, columns: number): string {
    const point = isImage
        ? localized("A point is the first of its {0} × {1} elements.", rows, columns)
        : isSampled
          ? localized("A point is the mean of a sample of its {0} × {1} elements.", rows, columns)
          : localized("A point is the mean of its {0} × {1} elements.", rows, columns);
    return `${point} ${localized("A point is marked if any element used for it is NaN or Inf.")}`;
}

function canvasOf(points: Uint8ClampedArray<ArrayBuffer>, { width, height }: Picture, isImage: boolean): HTMLCanvasElement {
    const label = isImage ? localized("Image, {0} × {1} points", height, width) : localized("Heat map, {0} × {1} points", height, width);
    const canvas = make("canvas", { width, height, role: "img", "aria-label": label });
    // Limit the ratio, so that a narrow picture stays visible.
    canvas.style.aspectRatio = String(Math.min(Math.max(width / height, 1 / 8), 8));
    canvas.getContext("2d")?.putImageData(new ImageData(points, width, height), 0, 0);
    return canvas;
}

function coloured(bytes: Uint8Array, palette: Colour[]): Uint8ClampedArray<ArrayBuffer> {
    const points = new Uint8ClampedArray(bytes.length * 4);
    bytes.forEach((byte, at) => {
        const [red, green, blue] = MARKS[byte] ?? palette[byte] ?? [0, 0, 0];
        points.set([red, green, blue, 255], at * 4);
    });
    return points;
}

/** A colour for each byte up to the highest. */
function paletteOf(low: number, high: number): Colour[] {
    const isAroundZero = low < 0 && high > 0;
    const reach = Math.max(-low, high);
    return Array.from({ length: HIGHEST + 1 }, (_, byte) => {
        const value = low + (byte / HIGHEST) * (high - low);
        return isAroundZero ? mixed(AROUND_ZERO, (value / reach + 1) / 2) : mixed(RISING, byte / HIGHEST);
    });
}

function mixed(colours: Colour[], part: number): Colour {
    const at = Math.min(Math.max(part, 0), 1) * (colours.length - 1);
    const [from, to] = [colours[Math.floor(at)] ?? [0, 0, 0], colours[Math.ceil(at)] ?? [0, 0, 0]];
    const mix = (channel: 0 | 1 | 2): number => Math.round(from[channel] + (to[channel] - from[channel]) * (at % 1));
    return [mix(0), mix(1), mix(2)];
}

function legend({ low, high }: Picture, palette: Colour[], bytes: Uint8Array): Node[] {
    const bar = make("canvas", { width: palette.length, height: 1, class: "bar", "aria-hidden": true });
    bar.getContext("2d")?.putImageData(new ImageData(coloured(Uint8Array.from(palette.keys()), palette), palette.length, 1), 0, 0);
    const found = new Set(bytes);
    const marks = [[255, "NaN"], [POSITIVE_INF, "inf"], [NEGATIVE_INF, "-inf"]] as const;
    const shown = marks.filter(([byte]) => found.has(byte)).map(([byte, name]) => {
        const swatch = make("span", { class: "swatch" });
        swatch.style.backgroundColor = `rgb(${(MARKS[byte] ?? []).join(" ")})`;
        return make("span", { class: "mark" }, swatch, name);
    });
    return [make("span", {}, short(low)), bar, make("span", {}, short(high)), ...shown];
}

/** A number with few digits. */
export function short(value: number): string {
    return String(Number(value.toPrecision(4)));
}
