/** Before anything is compiled, each view and "Explore Stages" say so, without a session and in one. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

const EMPTY = {
    Findings: "appear here, each with its line",
    Compiles: "appear here while you debug",
    Graph: "select a compile to see its graph",
    Guards: "select a compile to see its guards",
    Cache: "appear here while you debug",
    Timeline: "Stop while Dynamo traces a function",
    Compare: "turn on Differs from Eager",
};
const EMPTY_IN_SESSION = {
    Findings: "of this session appear here",
    Compiles: "when this program compiles them",
    Graph: "Functions appear there when this program",
    Guards: "Functions appear there when this program",
    Cache: "when this program has compiled",
    Timeline: "ordinary Python has no history.",
    Compare: "No call that differs is known",
};

test("before anything is compiled each view and Explore Stages say so", async ({ vscode, workspace, picture }) => {
    const { compiles, debug, page } = vscode;
    const views = Object.keys(EMPTY) as (keyof typeof EMPTY)[];
    const expectTexts = async (texts: typeof EMPTY, buttons: number): Promise<void> => {
        await compiles.show(...views);
        for (const view of views) {
            await expect(compiles.body(view), view).toContainText(texts[view]);
            await expect(compiles.body(view).getByRole("button", { name: "Debug This File" }), view).toHaveCount(buttons);
        }
    };
    await expectTexts(EMPTY, 1);
    await picture("empty-views-without-session");

    const line = await workspace.line("basic.py", "eager_call");
    await workspace.write(".vscode/launch.json", launchJson({ explore: true }));
    await vscode.openFile("basic.py");
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("main", "basic.py", line));
    await expectTexts(EMPTY_IN_SESSION, 0);
    await picture("empty-views");
    await vscode.command("torch.compile: Explore Stages");
    await expect(page.locator(".notification-toast", { hasText: "nothing has been compiled yet" })).toBeVisible();
    await debug.press("Shift+F5");
    await debug.waitForEnd();

    // The buttons of an empty view start the program, and lead to the filter that fills the view.
    await vscode.openFile("basic.py");
    await compiles.show("Compare");
    await compiles.body("Compare").getByRole("button", { name: "Debug This File" }).click();
    await debug.waitForStop(at("main", "basic.py", line));
    await debug.press("Shift+F5");
    await debug.waitForEnd();
    await compiles.show("Compare");
    await compiles.body("Compare").getByRole("button", { name: "Open Breakpoints" }).click();
    await expect(await debug.reveal("breakpoints", "Differs from Eager")).toBeVisible();
});
