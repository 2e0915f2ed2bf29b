/** The views about compiles in the Run and Debug side bar. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

test("compiles, graph and guards are shown, and their lines are links", async ({ vscode, workspace, picture }) => {
    const { debug, editor } = vscode;
    const after = await workspace.line("graph_break.py", "after_break");
    await vscode.openFile("graph_break.py");
    await editor.setBreakpoint(after);
    await vscode.startDebugging();
    await debug.waitForStop(new RegExp(`^train_step \\(resumed at line \\d+\\) graph_break.py ${after}:`));
    for (const name of ["Watch", "Breakpoints", "Variables", "Call Stack"]) {
        await debug.foldPane(name, false);
    }
    for (const name of ["Compiles", "Graph", "Guards"]) {
        await debug.foldPane(`torch.compile: ${name}`, true);
    }
    await expect(debug.treeRow("Compiles", "train_step (resumed at line")).toContainText("tracing");
    await expect(debug.messageOf("Graph")).toContainText("still tracing");

    await debug.treeRow("Compiles", "0/0").click();
    await expect(await debug.revealTreeRow("Graph", "scaled")).toContainText("f32[2, 3]");
    await expect(debug.treeRow("Guards", "L['x']")).toContainText("TENSOR_MATCH");
    await expect(await debug.revealTreeRow("Compiles", "Graph break")).toContainText("graph_break()");
    await picture("views");

    await (await debug.revealTreeRow("Graph", "scaled")).click();
    await expect(vscode.page.locator(".statusbar-item", { hasText: /^Ln / })).toContainText(
        `Ln ${await workspace.line("graph_break.py", "before_break")},`,
    );
    await vscode.command("torch.compile: Open Readable Graph");
    await expect.poll(() => editor.text()).toContain("scaled = total");
});

test("a recompile names the guard that failed", async ({ vscode, workspace }) => {
    const { debug } = vscode;
    const line = await workspace.line("recompiles.py", "integer");
    await vscode.openFile("recompiles.py");
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("select", "recompiles.py", line));
    for (const name of ["Watch", "Breakpoints"]) {
        await debug.foldPane(name, false);
    }
    await debug.foldPane("torch.compile: Compiles", true);
    await expect(debug.treeRow("Compiles", "Recompiled")).toContainText("mode");
});
