import { defineConfig } from "@playwright/test";
import { join } from "node:path";

import { NEWEST, OLDEST } from "./harness/code-server.js";
import { LATE } from "./harness/late.js";
import { output } from "./harness/places.js";
import type { PerWorker } from "./harness/test.js";

// Waiting threads of OpenMP must not spin, which would slow down the editor and other tests.
process.env.OMP_WAIT_POLICY ??= "passive";

const MINUTES = 60_000;
const TASKS = ["tasks.test.ts", "more-tasks.test.ts"];

export default defineConfig<object, PerWorker>({
    testDir: ".",
    testMatch: "*.test.ts",
    projects: [
        // Tasks take minutes, so they run in the newest VS Code, and only with DYNAMO_DAP_ALL_TASKS=1 in the oldest.
        { name: OLDEST, testIgnore: process.env.DYNAMO_DAP_ALL_TASKS ? [] : TASKS, use: { version: OLDEST } },
        // The first steps of a new user run in both.
        { name: NEWEST, testMatch: ["first-minutes.test.ts", "first-minutes-python.test.ts", "python-extension.test.ts", ...TASKS], use: { version: NEWEST } },
    ],
    globalSetup: "./harness/prepare.ts",
    outputDir: join(output, "failures"),
    reporter: [["list"], ["./harness/summary-reporter.ts"]],
    // One worker: VS Code, a browser and a program that compiles keep a small machine busy.
    workers: 1,
    // No retries: a test that fails sometimes is a defect.
    retries: 0,
    timeout: 5 * MINUTES,
    globalTimeout: 80 * MINUTES,
    // A small machine that also runs the Python tests may take long to answer a click.
    expect: { timeout: 60_000, toPass: LATE },
});
