/** The views about compiles in the side bar "torch.compile". */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

test("compiles, graph and guards are shown, and their lines are links", { tag: ["@core", "@picture"] }, async ({ vscode, workspace, picture }) => {
    const { compiles, debug, editor } = vscode;
    const [before, after] = [await workspace.line("graph_break.py", "before_break"), await workspace.line("graph_break.py", "after_break")];
    await vscode.openFile("graph_break.py");
    await editor.setBreakpoint(before);
    await editor.setBreakpoint(after);
    await vscode.startDebugging();
    await debug.waitForStop(at("train_step", "graph_break.py", before));
    await compiles.show("Compiles", "Graph", "Guards");
    await expect(compiles.row("Compiles", "0/0")).toContainText("tracing");
    await expect(await compiles.reveal("Graph", "total_3"), "the graph so far").toContainText("total_2 + mul_3");
    await expect(compiles.row("Guards", "x as Tensor f32[2, 3] cpu"), "the guards so far").toContainText("TENSOR_MATCH");

    await debug.press("F5");
    // Dynamo restarts its analysis after the graph break, which does not hit the breakpoint again.
    await debug.waitForStop(at("train_step (resumed at line 16)", "graph_break.py", after));
    await compiles.show("Compiles", "Graph", "Guards");
    await expect(compiles.row("Compiles", "train_step (resumed at line")).toContainText("tracing");
    await compiles.row("Compiles", "0/0").click();
    await expect(compiles.title("Graph"), "the compile is selected").toContainText("0/0");
    await compiles.open("Compiles", "0/0");
    await expect(await compiles.reveal("Graph", "scaled")).toContainText("f32[2, 3]");
    await expect(compiles.row("Guards", "x is f32[2, 3]"), "what is about one tensor is one row").toContainText("2 checks");
    await expect(await compiles.reveal("Compiles", "Graph break")).toContainText("graph_break()");
    await picture("views");

    await (await compiles.reveal("Graph", "scaled")).click();
    await expect(vscode.page.locator(".statusbar-item", { hasText: /^Ln / })).toContainText(`Ln ${before},`);
    await vscode.command("torch.compile: Open Readable Graph");
    await expect.poll(() => editor.text()).toContain("scaled = total");
    await expect(vscode.page.locator(".tab.active", { hasText: / of .+ \[\d+∕\d+\]\.py/ })).toBeVisible();
});

test("a recompile names the guard that failed", async ({ vscode, workspace, picture }) => {
    const { compiles, debug } = vscode;
    const line = await workspace.line("recompiles.py", "integer");
    await vscode.openFile("recompiles.py");
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("select", "recompiles.py", line));
    await compiles.show("Findings", "Compiles");
    await expect(compiles.row("Compiles", "Recompiled")).toContainText("mode");
    const finding = compiles.row("Findings", "Recompiled · recompiles.py:");
    await expect(finding.locator(".label-name"), "the cause comes first, whole").toHaveText(/mode/);
    await compiles.open("Findings", "Recompiled · recompiles.py:");
    await expect(await compiles.reveal("Findings", "In select [")).toBeVisible();
    await picture("findings");
});

test("a call that differs when compiled is compared line by line", async ({ vscode, workspace, picture }) => {
    const { compiles, debug, page } = vscode;
    const file = "wrong_backend.py";
    const [same, differs] = [await workspace.line(file, "same"), await workspace.line(file, "differs")];
    await vscode.openFile(file);
    await vscode.editor.setBreakpoint(same);
    await vscode.startDebugging();
    await debug.waitForStop(at("block", file, same));
    for (const name of ["Watch", "Call Stack"]) {
        await debug.foldPane(name, false);
    }
    for (const filter of ["NaN and Inf", "Differs from Eager"]) {
        await (await debug.reveal("breakpoints", filter)).getByRole("checkbox").click();
    }
    await debug.foldPane("Call Stack", true);
    await debug.press("F5");
    await debug.waitForStop(at("block", file, differs));
    const widget = page.locator(".exception-widget");
    await expect(widget).toContainText("Mismatch: torch.nn.functional.silu: largest difference");
    await expect(widget.locator(".description")).toContainText(/^Compiled and eager results differ .*\nWhere: .*\nCause: the backend \(wrong\)/);
    await compiles.show("Compare");
    await expect(compiles.row("Compare", "Cause: the backend (wrong)")).toBeVisible();
    await expect(compiles.row("Compare", "hidden = x @ weight")).toContainText("compiled ±0");
    await expect(compiles.row("Compare", "silu(hidden)")).toContainText(/compiled ±0\.\d/);
    await expect(compiles.row("Compare", "hidden = x @ weight").locator(".codicon-pass")).toBeVisible();
    await expect(compiles.row("Compare", "silu(hidden)").locator(".codicon-error")).toBeVisible();
    await vscode.command("Open Comparison as Table");
    const table = page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    await expect(table.locator("#verdict")).toContainText("Cause: the backend (wrong)");
    const sources = table.locator("td.source");
    await expect(sources.first()).toContainText("hidden = x @ weight");
    await expect(table.locator("tr.differs td.source").first()).toContainText("silu(hidden)");
    await table.getByRole("button", { name: "Max" }).click();
    await expect(sources.first(), "the largest difference first").toContainText("silu(hidden)");
    await table.getByRole("button", { name: "Max" }).click();
    await expect(sources.first()).toContainText("hidden = x @ weight");
    await picture("comparison-table");
    await table.locator("tr.differs", { hasText: "silu(hidden)" }).click();
    await expect(page.locator(".statusbar-item", { hasText: /^Ln / })).toContainText(`Ln ${differs},`);
    await compiles.show("Compare");
    await compiles.row("Compare", "hidden = x @ weight").click();
    await expect(page.locator(".statusbar-item", { hasText: /^Ln / })).toContainText(`Ln ${same},`);
    await debug.show();
    await debug.foldPane("Call Stack", true);
    await debug.press("F5");
    await debug.waitForStop(at("share", file, await workspace.line(file, "divided")));
    await expect(widget).toContainText("NaN: operator.truediv: 4 of 4 elements are NaN");
});

test("in a comparison, a line that runs only during tracing is not red", async ({ vscode, workspace, picture }) => {
    const { compiles, debug, page } = vscode;
    await workspace.write("sized.py", SIZED);
    await vscode.openFile("sized.py");
    await vscode.editor.setBreakpoint(1);
    await vscode.startDebugging();
    await debug.waitForStop(at("<module>", "sized.py", 1));
    for (const name of ["Watch", "Call Stack"]) {
        await debug.foldPane(name, false);
    }
    await (await debug.reveal("breakpoints", "Differs from Eager")).getByRole("checkbox").click();
    await debug.foldPane("Call Stack", true);
    await debug.press("F5");
    await debug.waitForStop(at("block", "sized.py", 15));
    await compiles.show("Compare");
    await expect(compiles.row("Compare", "silu(x @ weight)").locator(".codicon-error")).toBeVisible();
    await expect(compiles.row("Compare", "rows = x.shape").locator(".codicon-circle-outline")).toBeVisible();
    await vscode.command("Open Comparison as Table");
    const table = page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    const colour = async (text: string): Promise<string> =>
        table.locator("td.source", { hasText: text }).evaluate((cell) => getComputedStyle(cell).color);
    await expect(table.locator("tr.differs", { hasText: "silu(x @ weight)" })).toBeVisible();
    expect(await colour("rows = x.shape")).not.toBe(await colour("silu(x @ weight)"));
    await picture("comparison-of-sizes");
});

test("Forecast Recompiles says which sizes compile next, and which declaration serves all sizes", async ({ vscode, workspace, picture }) => {
    await workspace.write("sizes.py", SIZES);
    await vscode.openFile("sizes.py");
    await vscode.command("Forecast Recompiles");
    const { page } = vscode;
    await expect(page.locator(".tab.active", { hasText: "sizes.py forecast" })).toBeVisible({ timeout: 120_000 });
    const text = page.locator(".editor-group-container.active .view-lines");
    await expect(text).toContainText(/0\sto\s1\s+compiles/);
    await expect(text).toContainText(/tried:\smark_dynamic\(x,\s0\)/);
    await picture("forecast");
});

const SIZES = `import torch


@torch.compile(backend="eager")
def scaled(x):
    return x * x.shape[0]


for size in (3, 5):
    scaled(torch.ones(size))
print("ran")
`;

const SIZED = `import torch


def wrong(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is torch.nn.functional.silu:
            node.target = torch.nn.functional.relu
    graph.recompile()
    return graph.forward


@torch.compile(backend=wrong, dynamic=True)
def block(x, weight):
    rows = x.shape[0] * 2
    hidden = torch.nn.functional.silu(x @ weight)
    return hidden / rows


block(torch.randn(4, 8), torch.randn(8, 8))
`;
