/**
 * Prints one line for each failed test at the end of the run, and where its screenshot and logs are, in the format of
 * tests/failures.py. If only the end of a long log is kept, these lines show which tests failed, and why.
 */

import type { Reporter, TestCase, TestResult } from "@playwright/test/reporter";
import { basename, join } from "node:path";

import { output } from "./places.js";

const LISTED = 15;

/** The name of the attachment with the text of the dialog that was open when a test failed. */
export const OPEN_DIALOG = "the dialog that was open when the test failed";

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
        for (const [name, why] of [...this.failures].slice(0, LISTED)) {
            console.log(`FAILED ${name} - ${why}`);
        }
        if (this.failures.size > LISTED) {
            console.log(`... and ${this.failures.size - LISTED} more`);
        }
        if (this.failures.size > 0) {
            console.log(`KEPT screenshots and logs of what failed: ${join(output, "failures")}`);
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
    const dialog = result.attachments.find((each) => each.name === OPEN_DIALOG)?.body?.toString();
    const open = dialog === undefined ? "" : ` (open dialog: ${dialog.replace(/\s+/g, " ").slice(0, 200)})`;
    return lines.slice(0, 10).join(" ").slice(0, 300) + open;
}
