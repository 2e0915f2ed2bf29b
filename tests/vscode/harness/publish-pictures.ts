/** `make screenshots`: compresses the tests' screenshots and copies them to the folder of the README's pictures. */

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import UPNG from "upng-js";

import { extensionRoot, output } from "./places.js";

const PICTURES = [
    ...["compile-time", "cached-call", "evaluate", "graph", "graph-break", "views", "run-time", "tensor", "time-travel"],
    // Of the walkthrough.
    ...["install", "nan", "report"],
];
/** The number of colours; a window of VS Code has few. */
const COLOURS = 96;

const destination = join(extensionRoot, "media", "pictures");
await mkdir(destination, { recursive: true });
for (const name of PICTURES) {
    const file = await readFile(join(output, `${name}.png`));
    const image = UPNG.decode(new Uint8Array(file).buffer);
    const small = UPNG.encode(UPNG.toRGBA8(image), image.width, image.height, COLOURS);
    await writeFile(join(destination, `${name}.png`), Buffer.from(small));
    console.log(`${name}.png: ${Math.round(small.byteLength / 1024)} KB`);
}
