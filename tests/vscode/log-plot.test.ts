/** "Plot Log Messages": plots numbers of log messages in compiled functions and in ordinary Python. */

import { numbersIn, valuesIn } from "../../vscode-extension/src/session/logged-numbers.js";
import { expect, test } from "./harness/test.js";

const FILE = "descent.py";
const PROGRAM = `import torch


@torch.compile(backend="eager")
def loss_of(x, weight):
    loss = (x * weight).square().mean()
    return loss


weight = torch.ones(3)
for index in range(40):
    weight = weight * (0.9 if index != 30 else float("nan"))
    loss = loss_of(torch.ones(3), weight)
    seen = index * 2
print("done")
`;

test("log messages are plotted, hit by hit, and say where NaN began", async ({ vscode, workspace, picture }) => {
    const { debug, editor, page } = vscode;
    await workspace.write(FILE, PROGRAM);
    await vscode.openFile(FILE);
    await editor.setBreakpoint(6);
    await editor.editBreakpoint(6, "Log Message", "loss {loss.item()}");
    await editor.setBreakpoint(7);
    await editor.editBreakpoint(7, "Log Message", "loss {loss.item()} at {weight.tolist()}");
    await editor.setBreakpoint(14);
    await editor.editBreakpoint(14, "Log Message", "index {index} loss {loss}");
    await vscode.startDebugging();
    await debug.waitForEnd();
    const failed = page.locator(".notification-toast", { hasText: "at line 6: 40 hits, all failed." });
    await expect(failed).toContainText("line 6 assigns loss");
    await picture("log-message-failed");
    await failed.getByRole("button", { name: "Move to Line 7" }).click();
    await expect(await debug.reveal("breakpoints", FILE, "7")).toBeVisible();
    await expect(debug.rows("breakpoints").filter({ hasText: /descent.py\s*6/ })).toHaveCount(0);
    const links = editor.area.locator(".codelens-decoration a", { hasText: /^Plot$/ });
    await expect(links, "a link above each line with a log message").toHaveCount(2);
    await picture("plot-links");
    await links.first().click();
    const plots = page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    const ofTrace = plots.getByLabel("Plot of descent.py:7");
    await expect(ofTrace.locator(".u-legend")).toContainText("weight.tolist()[2]");
    await expect(ofTrace.locator(".nan-note")).toContainText("loss.item(): 10 × NaN or Inf, first at hit 31.");
    const ordinary = plots.getByLabel("Plot of descent.py:14");
    await expect(ordinary.locator(".u-legend")).toContainText("index");
    await expect(ordinary.locator(".nan-note")).toContainText("loss: 10 × NaN or Inf, first at hit 31.");
    // The text at a point.
    const over = ofTrace.locator(".u-over");
    await over.hover({ position: { x: 1, y: 40 } });
    await expect(ofTrace.locator(".u-legend")).toContainText("0.8");
    await picture("log-plot");
});

test.describe("numbers in log messages", () => {
    const cases: [string, number[]][] = [
        ["0.5", [0.5]],
        ["-1e-07", [-1e-7]],
        ["nan", [NaN]],
        ["-inf", [-Infinity]],
        ["True", [1]],
        ["tensor(0.25, grad_fn=<MeanBackward0>)", [0.25]],
        ["tensor([1., -2.5], device='cuda:0')", [1, -2.5]],
        ["Tensor f32[] cpu = 0.1", [0.1]],
        ["Tensor f32[] cpu = 0.1, requires_grad", [0.1]],
        ["Tensor f32[] cpu = 0.1 (not proven), requires_grad", [0.1]],
        ["Tensor f32[2] cpu = [0.1, 2.0] (not proven)", [0.1, 2]],
        ["0.5 (not proven)", [0.5]],
        ["Tensor f32[1, 2] cpu = [[0.1, nan]]", [0.1, NaN]],
        ["[1, 2, 3]", [1, 2, 3]],
        ["[0.5, 1.5, … 5 more]", []],
        ["s0 (3 in this call)", [3]],
        ["Tensor f32[3] cpu", []],
        ["'epoch 3'", []],
        ["[<object>, 1]", []],
        ["", []],
    ];
    for (const [text, numbers] of cases) {
        test(`in ${text === "" ? "no text" : text}`, () => {
            expect(numbersIn(text)).toEqual(numbers);
        });
    }

    test("in a message that debugpy printed, found by its breakpoint", () => {
        expect(valuesIn("loss (now) 0.5 at 7", "loss (now) {loss.item()} at { step }")).toEqual(new Map([["loss.item()", "0.5"], ["step", "7"]]));
        expect(valuesIn("loss 0.5", "lost {loss}")).toBeUndefined();
        expect(valuesIn("plain", "plain")).toBeUndefined();
    });
});
