/** "Compare Two Runs…" runs `dynamo-dap diff`, and opens a difference in a diff editor next to the user's line. */

import { LATE } from "./harness/late.js";
import { expect, test } from "./harness/test.js";

const PROGRAM = `import os
import torch


@torch.compile(backend="eager")
def scaled(x):
    return x * int(os.environ["SCALE"])


scaled(torch.ones(3))
`;

test("a difference of two runs opens in a diff editor, at its line", async ({ vscode, workspace, picture }) => {
    test.setTimeout(4 * 60_000);
    const { page } = vscode;
    await workspace.write("scaled.py", PROGRAM);
    await vscode.openFile("scaled.py");
    await vscode.command("torch.compile: Compare Two Runs…");
    await vscode.quickInput.answerOneOf("the first", "SCALE=2 scaled.py");
    await vscode.quickInput.answerOneOf("the second", "SCALE=3 scaled.py");
    const offered = page.locator(".quick-input-list .monaco-list-row", { hasText: "the graph of scaled differs" });
    await expect(offered, "both programs have run").toBeVisible(LATE);
    await vscode.quickInput.choose("the graph of scaled differs");
    const diff = page.locator(".monaco-diff-editor");
    await expect(diff.locator(".editor.original .view-lines")).toContainText("x * 2");
    await expect(diff.locator(".editor.modified .lines-content > .view-lines")).toContainText("x * 3");
    await expect(page.locator(".tab.active", { hasText: "scaled.py" }), "the user's line is beside it").toBeVisible();
    await picture("compared-runs");
});
