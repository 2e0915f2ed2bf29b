/** Chooses the exception filters that VS Code shows, without VS Code's API. */

import { readFile } from "node:fs/promises";

import type { DynamoConfiguration } from "../configuration/options.js";

/** Filters about Triton's kernels. */
const OF_TRITON = ["out-of-bounds", "race", "kernel-mismatch"];
const IMPORTS_TRITON = /^[ \t]*(?:import[ \t]+(?:[^#\n]*[ ,\t])?|from[ \t]+)triton\b/m;

/**
 * Returns those of `chosen`, the user's setting, and those of Triton if the configuration or the program uses Triton.
 * Returns only `known` names: a filter of another version would prevent the start.
 */
export async function offeredFilters(chosen: string[], known: readonly string[], configuration: DynamoConfiguration): Promise<string[]> {
    const wanted = (await usesTriton(configuration)) ? [...chosen, ...OF_TRITON] : chosen;
    return known.filter((name) => wanted.includes(name));
}

async function usesTriton({ triton, code, program }: DynamoConfiguration): Promise<boolean> {
    if (triton !== undefined) {
        return true;
    }
    // A program that cannot be read cannot be started, and the server then says so.
    const text = code !== undefined ? [code].flat().join("\n") : await readFile(program ?? "", "utf8").catch(() => "");
    return IMPORTS_TRITON.test(text);
}
