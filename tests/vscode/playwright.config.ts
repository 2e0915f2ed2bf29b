import { defineConfig } from "@playwright/test";
import { join } from "node:path";

import { NEWEST, OLDEST } from "./harness/code-server.js";
import { output } from "./harness/places.js";
import type { PerWorker } from "./harness/test.js";

// Threads of OpenMP that spin while they wait take the time of the editor and of the tests beside it.
process.env.OMP_WAIT_POLICY ??= "passive";

const MINUTES = 60_000;
const TASKS = ["tasks.test.ts", "more-tasks.test.ts"];

export default defineConfig<object, PerWorker>({
    testDir: ".",
    testMatch: "*.test.ts",
    projects: [
        // Tasks take minutes: they run in the newest VS Code, and in the oldest with DYNAMO_DAP_ALL_TASKS=1.
        { name: OLDEST, testIgnore: process.env.DYNAMO_DAP_ALL_TASKS ? [] : TASKS, use: { version: OLDEST } },
        // What a new user meets first is tried in both.
        { name: NEWEST, testMatch: ["first-minutes.test.ts", "python-extension.test.ts", ...TASKS], use: { version: NEWEST } },
    ],
    globalSetup: "./harness/prepare.ts",
    outputDir: join(output, "failures"),
    reporter: [["list"], ["./harness/summary-reporter.ts"]],
    // One VS Code at a time: it, a browser and a program that compiles keep a small machine busy.
    workers: 1,
    // A test that fails now and then is a defect, and is not tried again.
    retries: 0,
    timeout: 5 * MINUTES,
    globalTimeout: 80 * MINUTES,
    // A small machine that runs the tests in Python too answers a click within seconds at most times, but not always.
    expect: { timeout: 60_000 },
});
