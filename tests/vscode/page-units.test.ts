/** Parts of the extension's pages that need no browser. */

import { expect, test } from "@playwright/test";

import type { ComparedLine } from "../../vscode-extension/src/session/requests.js";
import { COLUMNS, outcomeOf, sortedLines } from "../../vscode-extension/src/webview/compared-lines.js";
import { shortened } from "../../vscode-extension/src/webview/numbers.js";

test("compared lines are sorted by a column, an Inf before every number", () => {
    const line = (number: number, compiled?: ComparedLine["compiled"]): ComparedLine => ({ path: "/a.py", line: number, function: "f", text: `line ${number}`, operations: [], ...(compiled && { compiled }) });
    const lines = [line(1, { same: true, largest: 0 }), line(2), line(3, { same: false }), line(4, { same: false, largest: 0.123456, rmse: 1e-7 })];
    const [byLine, , byLargest, byError] = COLUMNS;
    if (byLine === undefined || byLargest === undefined || byError === undefined) {
        throw new Error("there are columns");
    }
    const order = (column: typeof byLine, isRising: boolean): number[] => sortedLines(lines, column, isRising).map((each) => each.line);
    expect(order(byLargest, byLargest.rises)).toEqual([3, 4, 1, 2]);
    expect(order(byLargest, true)).toEqual([2, 1, 4, 3]);
    expect(order(byLine, byLine.rises)).toEqual([1, 2, 3, 4]);
    expect(lines.map(byLargest.text)).toEqual(["0", "", "Inf", "0.123"]);
    expect(lines.map(byError.text)).toEqual(["", "", "Inf", "1e-7"]);
});

test("a line that runs only during tracing neither differs nor is the same", () => {
    const line: ComparedLine = { path: "/a.py", line: 1, function: "f", text: "rows = x.shape[0]", operations: ["operator.mul"] };
    const [same, differs] = [{ same: true, largest: 0 }, { same: false, largest: 1 }];
    expect([line, { ...line, dynamo: same }, { ...line, dynamo: same, compiled: differs }, { ...line, compiled: same, gradient: differs }].map(outcomeOf)).toEqual(["unknown", "same", "differs", "differs"]);
});

test("numbers are shortened to significant digits, NaN and Inf stay", () => {
    expect(["1.0", "0.123456", "-1234.5", "nan", "1e-30", "True", ""].map((text) => shortened(text, 3))).toEqual(["1", "0.123", "-1230", "nan", "1e-30", "True", ""]);
    expect(shortened("0.123456", 0)).toBe("0.123456");
});
