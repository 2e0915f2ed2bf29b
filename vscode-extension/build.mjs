// Bundles the extension into out/extension.cjs, and its pages into out. With --watch it rebuilds on every change.
// With DYNAMO_DAP_COVERAGE (`make coverage-vscode`), it lets the extension say which lines ran.

import { writeFile } from "node:fs/promises";
import process from "node:process";

import { context } from "esbuild";

import { buildReadme } from "./build-readme.mjs";

const watch = process.argv.includes("--watch");
// VS Code may kill the process, so it writes its coverage regularly.
const measured = {
    sourcemap: "external",
    minify: false,
    banner: { js: 'setInterval(() => require("node:v8").takeCoverage(), 10_000).unref();' },
};
const common = { bundle: true, sourcemap: watch, minify: !watch, metafile: true, logLevel: "info" };
const bundles = [
    await context({
        ...common,
        entryPoints: ["src/extension.ts"],
        outfile: "out/extension.cjs",
        platform: "node",
        format: "cjs",
        target: "node20",
        external: ["vscode"],
        ...(process.env.DYNAMO_DAP_COVERAGE ? measured : {}),
    }),
    await context({
        ...common,
        entryPoints: [
            { in: "src/webview/main.ts", out: "tensor" },
            { in: "src/webview/page.css", out: "tensor" },
            { in: "src/webview/comparison.ts", out: "comparison" },
            { in: "src/webview/comparison.css", out: "comparison" },
            { in: "src/webview/plot.ts", out: "plot" },
            { in: "src/webview/plot.css", out: "plot" },
        ],
        outdir: "out",
        platform: "browser",
        // uPlot's licence must be named; the bundler keeps only comments that begin with "!".
        banner: { js: "/*! With uPlot: Copyright (c) Leon Sorokin, MIT licence, https://github.com/leeoniya/uPlot */" },
        format: "iife",
        target: "es2022",
    }),
];
const inputs = new Set();
for (const bundle of bundles) {
    if (watch) {
        await bundle.watch();
    } else {
        const built = await bundle.rebuild();
        Object.keys(built.metafile.inputs).forEach((path) => inputs.add(path));
        await bundle.dispose();
    }
}
if (!watch) {
    await buildReadme();
    // The files in the bundles, for the release's bill of materials.
    await writeFile("out/bundled.json", JSON.stringify([...inputs].sort()));
}
