import { defineConfig } from "@playwright/test";
import { join } from "node:path";

import { chromium, CHROMIUM_ARGUMENTS } from "./harness/chromium.js";
import { output } from "./harness/places.js";

export default defineConfig({
    testDir: ".",
    testMatch: "*.test.ts",
    outputDir: join(output, "failures"),
    reporter: [["list"]],
    // One VS Code at a time: it, a browser and a program that compiles keep a small machine busy.
    workers: 1,
    timeout: 180_000,
    expect: { timeout: 15_000 },
    use: {
        viewport: { width: 1400, height: 900 },
        launchOptions: { executablePath: await chromium(), args: CHROMIUM_ARGUMENTS },
        screenshot: "only-on-failure",
        trace: "retain-on-failure",
    },
});
