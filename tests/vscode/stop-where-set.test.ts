/** If an attribute caused a recompile, one click makes the program stop where the attribute is set. */

import { at } from "./harness/debug-panes.js";
import { LATE } from "./harness/late.js";
import { expect, test } from "./harness/test.js";

const FILE = "adapters.py";
const PROGRAM = `import torch


class Adapted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.active = "a"

    def choose(self, name):
        self.active = name

    def forward(self, x):
        return x + len(self.active)


model = Adapted()
compiled = torch.compile(model, backend="eager")
for name in ("a", "bb", "ccc"):
    model.choose(name)
    compiled(torch.ones(3))
print("ended")
`;
const SET = 10;

test("a finding of a recompile sets a breakpoint where the attribute changes, and the program stops there", async ({ vscode, workspace, picture }) => {
    const { compiles, debug, page } = vscode;
    await workspace.write(FILE, PROGRAM);
    await vscode.openFile(FILE);
    await vscode.startDebugging();
    await debug.waitForEnd();

    await compiles.show("Findings");
    const finding = compiles.row("Findings", "self.active");
    await expect(finding).toBeVisible(LATE);
    const click = finding.getByRole("button", { name: "Stop at Assignment" });
    await expect(async () => {
        await finding.hover();
        await expect(click, "the record says where it is set").toBeVisible({ timeout: 1000 });
    }).toPass();
    await picture("stop-where-set");
    await click.click();

    await vscode.startDebugging();
    await debug.waitForStop(at("Adapted.choose", FILE, SET));
    await debug.press("F5");
    await debug.waitForStop(at("Adapted.choose", FILE, SET));
    await expect(page.locator(".notification-toast .codicon-error")).toHaveCount(0);
});
