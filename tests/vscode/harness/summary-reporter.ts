/**
 * Prints one line for each failed test at the end of the run, in the format of pytest. If only the end of a long log is
 * kept, these lines show which tests failed, and why.
 */

import type { Reporter, TestCase, TestResult } from "@playwright/test/reporter";
import { basename } from "node:path";

export default class SummaryReporter implements Reporter {
    private readonly failures = new Map<string, string>();

    onTestEnd(test: TestCase, result: TestResult): void {
        const name = `tests/vscode/${basename(test.location.file)}::${test.title}`;
        if (test.ok()) {
            this.failures.delete(name);
        } else {
            this.failures.set(name, reason(result));
        }
    }

    onEnd(): void {
        for (const [name, why] of this.failures) {
            console.log(`FAILED ${name} - ${why}`);
        }
    }

    printsToStdio(): boolean {
        return false;
    }
}

function reason(result: TestResult): string {
    const message = result.error?.message ?? result.status;
    // eslint-disable-next-line no-control-regex
    const lines = message.replace(/\u001b\[[0-9;]*m/g, "").split("\n").map((line) => line.trim()).filter(Boolean);
    return lines.slice(0, 3).join(" ").slice(0, 300);
}
