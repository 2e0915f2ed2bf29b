/** The ways to draw a tensor. */

import type { TensorArguments } from "../session/structures.js";
import { localized } from "../localized.js";

export type Kind = NonNullable<TensorArguments["picture"]>;

export const PICTURES: Record<Kind, string> = {
    map: localized("Heat map"),
    tiles: localized("Heat map of each index"),
    chw: localized("Image (C, H, W)"),
    hwc: localized("Image (H, W, C)"),
};

/** The maximum number of points of a picture in each direction. */
export const POINTS: Record<Kind, number> = { map: 256, tiles: 96, chw: 512, hwc: 512 };
