/** Tasks of a user with an empty profile. Each is solved with only the UI, in at most five gestures. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { at } from "./harness/debug-panes.js";
import { Gestures } from "./harness/gestures.js";
import { LATE } from "./harness/late.js";
import { GATED } from "./harness/programs.js";
import { test } from "./harness/newcomer.js";
import { repository } from "./harness/places.js";
import { expect } from "./harness/test.js";
import type { Workbench } from "./harness/workbench.js";

test.use({ profile: "empty", settings: {} });

/** Takes four gestures, because VS Code shows the filters only after the first session has begun. */
async function runWith(filter: string, name: string, line: number, gestures: Gestures, vscode: Workbench): Promise<void> {
    const { debug, editor } = vscode;
    await gestures.do("click left of the first line", () => editor.clickBreakpoint(line));
    await gestures.do("F5", () => vscode.startDebugging());
    await debug.waitForStop(at("<module>", name, line));
    await gestures.do("tick the filter", async () => (await debug.reveal("breakpoints", filter)).getByRole("checkbox").click());
    await gestures.do("F5", () => debug.press("F5"));
}

test("NaN at step 300", async ({ gestures, vscode, workspace, pictures }) => {
    await workspace.write("decay.py", DECAY);
    await gestures.do("open the file", () => vscode.openFile("decay.py"));
    await runWith("NaN and Inf", "decay.py", 3, gestures, vscode);
    const widget = vscode.page.locator(".exception-widget");
    await expect(widget).toContainText("Cause: your code", LATE);
    await expect(widget).toContainText("decay.py");
    await pictures("nan", widget);
});

test("the line that differs from eager", async ({ gestures, vscode, workspace, pictures }) => {
    const page = await readFile(join(repository, "docs", "tutorials", "mismatch.md"), "utf8");
    const text = page.split('```python title="swish.py"\n')[1]?.split("```\n")[0] ?? "";
    await workspace.write("swish.py", text);
    await gestures.do("open the file", () => vscode.openFile("swish.py"));
    await runWith("Differs from Eager", "swish.py", text.split("\n").findIndex((line) => line.startsWith("swish(")) + 1, gestures, vscode);
    const widget = vscode.page.locator(".exception-widget");
    await expect(widget).toContainText("Cause: the backend (fast_math)", LATE);
    await pictures("mismatch", widget);
});

test("the values after a graph break", async ({ gestures, vscode, workspace, pictures }) => {
    await workspace.write("broken.py", BROKEN);
    await gestures.do("open the file", () => vscode.openFile("broken.py"));
    await gestures.do("click left of the line", () => vscode.editor.clickBreakpoint(8));
    await gestures.do("F5", () => vscode.startDebugging());
    await vscode.debug.waitForStop(/broken.py 8:/);
    const value = await vscode.debug.reveal("variables", "y =");
    await expect(value).toContainText("f32[4]");
    await pictures("after-break", value);
});

test("a condition; a logpoint and its plot", async ({ gestures, vscode, workspace, pictures }) => {
    await workspace.write("decay.py", DECAY);
    await gestures.do("open the file", () => vscode.openFile("decay.py"));
    const ofCondition = new Gestures();
    await ofCondition.do("click left of the line", () => vscode.editor.clickBreakpoint(14));
    await ofCondition.do("give it a condition", () => vscode.editor.editBreakpoint(14, "Expression", "step == 300"));
    await ofCondition.do("F5", () => vscode.startDebugging());
    await vscode.debug.waitForStop(at("<module>", "decay.py", 14));
    ofCondition.expectFew();
    const step = await vscode.debug.reveal("variables", "step =");
    await expect(step).toContainText("300");
    await pictures("condition", step);
    const row = await vscode.debug.reveal("breakpoints", "decay.py");
    await row.hover();
    await row.getByRole("button", { name: "Remove Breakpoint" }).click();
    await vscode.debug.press("F5");
    await vscode.debug.waitForEnd();

    await gestures.do("click left of the line", () => vscode.editor.clickBreakpoint(15));
    await gestures.do("make it a logpoint", () => vscode.editor.editBreakpoint(15, "Log Message", "loss {loss.item()}"));
    await gestures.do("F5", () => vscode.startDebugging());
    await vscode.debug.waitForEnd();
    await gestures.do("Plot Log Messages", () => vscode.command("Plot Log Messages"));
    const plots = vscode.page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    const note = plots.locator(".nan-note");
    await expect(note).toContainText("first at hit 301", LATE);
    await pictures("plot", note);
});

test("the data of a tensor", async ({ gestures, vscode, workspace, pictures }) => {
    await workspace.write("broken.py", BROKEN);
    await gestures.do("open the file", () => vscode.openFile("broken.py"));
    await gestures.do("click left of the line", () => vscode.editor.clickBreakpoint(8));
    await gestures.do("F5", () => vscode.startDebugging());
    await vscode.debug.waitForStop(/broken.py 8:/);
    const row = await vscode.debug.reveal("variables", "y =");
    await gestures.do("View Tensor", async () => {
        await row.hover();
        await row.getByRole("button", { name: "View Tensor" }).click();
    });
    const tensor = vscode.page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    await expect(tensor.locator("td").first()).toHaveText("2.0", LATE);
    await pictures("tensor", tensor.locator("td").first());
});

test("the assert that fails in a test of pytest", async ({ gestures, vscode, workspace, pictures }) => {
    await workspace.write("pytest.ini", "[pytest]\n");
    await workspace.write("test_loss.py", FAILING);
    await gestures.do("open the file", () => vscode.openFile("test_loss.py"));
    await gestures.do("Debug test", () => vscode.editor.area.locator(".codelens-decoration a", { hasText: "Debug test" }).click());
    await vscode.debug.waitForStop(at("test_loss", "test_loss.py", 11));
    const widget = vscode.page.locator(".exception-widget");
    await expect(widget).toContainText("assert 2.0 == 1.0");
    await pictures("pytest", widget);
});

test("the time that compiling takes", async ({ gestures, vscode, workspace, pictures }) => {
    await workspace.write("gated.py", GATED);
    await gestures.do("open the file", () => vscode.openFile("gated.py"));
    await gestures.do("Profile This File", () => vscode.command("Profile This File"));
    const offer = vscode.page.locator(".notification-toast", { hasText: "Profile written." });
    await gestures.do("Open the Flame Chart", () => offer.getByRole("button", { name: "Open the Flame Chart" }).click(LATE));
    const chart = vscode.page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    const total = chart.getByText("gated", { exact: false }).first();
    await expect(total).toBeVisible(LATE);
    await pictures("compile-time", total);
});

/** The scale reaches zero at step 300. */
const DECAY = `import torch

step = 0
values = torch.zeros(4)


@torch.compile(backend="eager")
def loss_of(values, scale):
    shares = values / scale
    return shares.mean()


for step in range(304):
    loss = loss_of(values, torch.tensor(max(0.0, 3.0 - step / 100)))
    step += 1
print("done")
`;

const BROKEN = `import torch


@torch.compile(backend="eager")
def scale(x):
    y = x + 1
    print("break")
    return y * 2


scale(torch.ones(4))
`;

const FAILING = `import torch


@torch.compile(backend="eager")
def loss(x):
    return x.mean()


def test_loss():
    value = loss(torch.full((3,), 2.0)).item()
    assert value == 1.0
`;
