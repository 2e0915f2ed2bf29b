/** Before anything is compiled, each view and "Explore Stages" say so, without a session and in one. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

const EMPTY = {
    Findings: "appear here, each with its line",
    Compiles: "appear here while you debug",
    Graph: "Select a compile to see its graph",
    Guards: "Select a compile to see its guards",
    Cache: "appear here while you debug",
    Timeline: "Stop while Dynamo traces a function",
    Compare: "Turn on Differs from Eager",
};

test("before anything is compiled each view and Explore Stages say so", async ({ vscode, workspace, picture }) => {
    const { compiles, debug, page } = vscode;
    const expectTexts = async (texts: Partial<typeof EMPTY>): Promise<void> => {
        for (const [name, text] of Object.entries(texts)) {
            const view = name as keyof typeof EMPTY;
            await compiles.show(view);
            await expect(compiles.body(view), view).toContainText(text);
        }
    };
    const explore = async (reason: string): Promise<void> => {
        await vscode.command("torch.compile: Explore Stages");
        const toast = page.locator(".notification-toast", { hasText: reason });
        await expect(toast).toBeVisible();
        await toast.locator(".codicon-notifications-clear").click();
        await expect(toast).toHaveCount(0);
    };
    await expectTexts(EMPTY);

    const line = await workspace.line("basic.py", "eager_call");
    await workspace.write(".vscode/launch.json", launchJson({ explore: true }));
    await vscode.openFile("basic.py");
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("main", "basic.py", line));
    await expectTexts({ ...EMPTY, Timeline: "ordinary Python has no history", Compare: "Differs from Eager" });
    await picture("empty-views");
    await explore("nothing has been compiled yet");
});
