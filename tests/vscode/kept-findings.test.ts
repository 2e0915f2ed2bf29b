/** Which findings of stops the view "Findings" keeps when programs start. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

test("a finding of a stop stays when another program starts, until its own program starts again", async ({ vscode, workspace }) => {
    const { compiles, debug } = vscode;
    const runTo = async (name: string): Promise<void> => {
        await vscode.openFile(name);
        await vscode.startDebugging();
    };
    await workspace.write("first.py", MAKES_NAN);
    await workspace.write("other.py", MAKES_NAN);
    await vscode.openFile("first.py");
    await vscode.editor.setBreakpoint(1);
    await runTo("first.py");
    await debug.waitForStop(at("<module>", "first.py", 1));
    await debug.foldPane("Call Stack", false);
    await (await debug.reveal("breakpoints", "NaN and Inf")).getByRole("checkbox").click();
    await debug.foldPane("Call Stack", true);
    await debug.press("F5");
    await debug.waitForStop(at("share", "first.py", 6));
    await debug.press("Shift+F5");
    await debug.waitForEnd();
    await runTo("other.py");
    await debug.waitForStop(at("share", "other.py", 6));
    await debug.press("Shift+F5");
    await debug.waitForEnd();
    await compiles.show("Findings");
    await expect(compiles.row("Findings", "first.py:6")).toContainText("NaN");
    await expect(compiles.row("Findings", "other.py:6")).toContainText("NaN");
    await runTo("first.py");
    await debug.waitForStop(at("<module>", "first.py", 1));
    await compiles.show("Findings");
    await expect(compiles.row("Findings", "first.py:6")).toHaveCount(0);
    await expect(compiles.row("Findings", "other.py:6")).toContainText("NaN");
});

const MAKES_NAN = `import torch


@torch.compile(backend="eager")
def share(part, whole):
    return part / whole


share(torch.zeros(3), torch.zeros(3))
`;
