// Bundles the extension into out/extension.cjs. With --watch it rebuilds on every change.

import { context } from "esbuild";

const watch = process.argv.includes("--watch");
const bundle = await context({
    entryPoints: ["src/extension.ts"],
    outfile: "out/extension.cjs",
    bundle: true,
    platform: "node",
    format: "cjs",
    target: "node20",
    external: ["vscode"],
    sourcemap: watch,
    minify: !watch,
    logLevel: "info",
});
if (watch) {
    await bundle.watch();
} else {
    await bundle.rebuild();
    await bundle.dispose();
}
