/** Stops while Dynamo traces, as VS Code shows them. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

const FILE = "basic.py";

test("a breakpoint by gutter click shows symbolic locals; steps continue from there", { tag: ["@core", "@picture"] }, async ({ vscode, workspace, picture }) => {
    const { debug } = vscode;
    const first = await workspace.line(FILE, "first");
    await vscode.openFile(FILE);
    await vscode.editor.clickBreakpoint(first);
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", FILE, first));
    const caller = at("main", FILE, await workspace.line(FILE, "eager_call"));
    await expect.poll(() => debug.texts("call-stack")).toContainEqual(expect.stringMatching(caller));
    await expect(debug.headline(), "what the call stack says fits").toHaveText("Tracing compute [0/0]");
    await expect(debug.row("variables", "x =")).toContainText("Tensor f32[3, 4]");
    await expect(debug.row("variables", "y =")).toContainText("requires_grad");
    await expect(debug.row("variables", "mode =")).toContainText("'add'");
    expect(await debug.offers("x ="), "what Dynamo traces can be set, for a trace apart").toContain("Set Value");

    await debug.press("F10");
    await debug.waitForStop(at("compute", FILE, await workspace.line(FILE, "branch")));
    await expect(debug.row("variables", "z =")).toContainText("Tensor f32[3, 4]");
    await expect.poll(() => vscode.editor.lineText(first), "the shape at the end of the line").toContain("z: f32[3, 4]");
    await debug.foldPane("Watch", false);
    await expect(async () => {
        // VS Code rebuilds the pane shortly after the stop, which may close rows that were just opened.
        await debug.expand("z =");
        // The height of the pane varies, so the row may have to be scrolled to.
        await expect(await debug.reveal("variables", "dtype =")).toContainText("float32", { timeout: 3000 });
    }).toPass();
    await picture("compile-time");

    await debug.press("F10");
    await debug.waitForStop(at("compute", FILE, await workspace.line(FILE, "call")));
    await debug.press("F11");
    await debug.waitForStop(at("scale", FILE, await workspace.line(FILE, "in_helper")));
    await debug.press("Shift+F11");
    // Back in the line of the call: its result is not assigned yet.
    await debug.waitForStop(at("compute", FILE, await workspace.line(FILE, "call")));
    await debug.press("F10");
    await debug.waitForStop(at("compute", FILE, await workspace.line(FILE, "after_call")));
    await debug.press("F5");

    // The second call is a cache hit, and stops, too.
    await expect(debug.headline()).toHaveText("Call 2 of compute [0/0]");
    await debug.waitForStop(at("compute", FILE, first));
    await expect(debug.consoleRows().filter({ hasText: "result 87" }).first()).toBeVisible();
    // Rows of the previous stop disappear when VS Code has the new values.
    await expect(debug.row("variables", "z =")).toHaveCount(0);
    await expect(debug.row("variables", "x =")).toContainText("Tensor f32[3, 4]");
    await picture("cached-call");
    await debug.press("F5");
    await debug.waitForEnd();
});

test("hovers, watches and the Debug Console evaluate; the graph so far is a document", { tag: "@picture" }, async ({ vscode, workspace, picture }) => {
    const { debug, editor, page } = vscode;
    const line = await workspace.line(FILE, "after_call");
    await vscode.openFile(FILE);
    await editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", FILE, line));
    await expect(await editor.hover(line, "z")).toContainText("Tensor f32[3, 4]");
    await expect(await debug.watch("z.shape[0] * 2")).toContainText("6");
    await expect((await debug.evaluate("tuple(z.shape)")).last()).toContainText("(3, 4)");
    await expect((await debug.evaluate("z.sum() + 1")).last()).toContainText("Tensor f32[]");
    await (await debug.console()).click();
    await page.keyboard.type("z.sha");
    await page.keyboard.press("Control+Space");
    const suggested = page.locator(".suggest-widget .monaco-list-row", { hasText: /^shape/ }).first();
    await expect(suggested.locator(".codicon-symbol-property"), "what a name stands for").toBeVisible();
    await picture("evaluate");
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+A");
    await page.keyboard.press("Delete");

    await vscode.command("torch.compile: Open Graph of This Frame");
    await expect(page.locator(".tab.active", { hasText: "graph of compute.py" })).toBeVisible();
    await expect.poll(() => editor.text()).toContain("doubled = z * 2  # f32[3, 4]");
    await expect.poll(() => editor.text(), "paths are short").toContain(`# ${FILE}:${await workspace.line(FILE, "in_helper")} in`);
    const keyword = editor.area.locator(".view-line span", { hasText: /^def$/ }).first();
    const plain = editor.area.locator(".view-line span", { hasText: /^compute$/ }).first();
    const colour = (part: typeof keyword): Promise<string> => part.evaluate((element) => getComputedStyle(element).color);
    await expect.poll(async () => (await colour(keyword)) !== (await colour(plain)), "keywords are coloured").toBe(true);
    await picture("graph");
    await expect((await debug.evaluate("ctx.print_graph()")).filter({ hasText: "l_x_ + l_y_" }).first()).toBeVisible();
});

test("values stand at the ends of the lines that set them, and not at earlier lines", async ({ vscode, workspace, picture }) => {
    const { debug, editor } = vscode;
    const lines = ["import torch", "", "", "@torch.compile(backend='eager')", "def attend(x):", "    q, k, v = x.chunk(3, dim=-1)"];
    lines.push("    q = q.view(4, 15, 4, 8).transpose(1, 2)", "    return (q.sum() + k.sum() + v.sum()).relu()", "", "");
    lines.push("attend(torch.ones(4, 15, 96))", "");
    await workspace.write("attend.py", lines.join("\n"));
    await vscode.openFile("attend.py");
    await editor.setBreakpoint(8);
    await vscode.startDebugging();
    await debug.waitForStop(/^attend attend.py 8:/);
    await expect.poll(() => editor.lineText(7)).toContain("q: f32[4, 4, 15, 8] all 1");
    const chunk = await editor.lineText(6);
    expect(chunk).toContain("k: f32[4, 15, 32] all 1");
    expect(chunk, "what q is now is not what this line gave").not.toContain("q: f32");
    await picture("inline-values");
});

test("a hit count, a condition and a log message decide at breakpoints", async ({ vscode, workspace }) => {
    const { debug, editor } = vscode;
    const file = "graph_break.py";
    const lineOf = (marker: string): Promise<number> => workspace.line(file, marker);
    const edits = [
        ["before_loop", "Log Message", "rounds is {rounds}"],
        ["in_loop", "Hit Count", "2"],
        ["before_break", "Expression", "rounds == 3"],
        ["after_break", "Expression", "scaled is None"],
    ] as const;
    await vscode.openFile(file);
    for (const [marker, kind, value] of edits) {
        await editor.setBreakpoint(await lineOf(marker));
        await editor.editBreakpoint(await lineOf(marker), kind, value);
    }
    await vscode.startDebugging();
    await debug.waitForStop(at("train_step", file, await lineOf("in_loop")));
    await expect(debug.row("variables", "index ="), "the second time").toContainText("1");
    await expect(debug.consoleRows().filter({ hasText: "rounds is 3" }).first()).toBeVisible();
    await debug.press("F5");
    await debug.waitForStop(at("train_step", file, await lineOf("before_break")));
    await debug.press("F5");
    await debug.waitForEnd();
});

test("the filters of the Breakpoints pane stop at a graph break", { tag: "@picture" }, async ({ vscode, workspace, picture }) => {
    const { debug, page } = vscode;
    const file = "graph_break.py";
    await vscode.openFile(file);
    await vscode.editor.setBreakpoint(await workspace.line(file, "before_loop"));
    await vscode.startDebugging();
    await debug.waitForStop(at("train_step", file, await workspace.line(file, "before_loop")));
    for (const name of ["Watch", "Call Stack"]) {
        await debug.foldPane(name, false);
    }
    for (const filter of ["Recompiles", "NaN and Inf", "Differs from Eager"]) {
        await expect((await debug.reveal("breakpoints", filter)).getByRole("checkbox")).not.toBeChecked();
    }
    await expect(debug.row("breakpoints", "Backend Failures"), "a setting offers it").toHaveCount(0);
    await expect((await debug.reveal("breakpoints", "Uncaught Exceptions")).getByRole("checkbox").first()).toBeChecked();
    await (await debug.reveal("breakpoints", "Graph Breaks")).getByRole("checkbox").click();
    await debug.foldPane("Call Stack", true);
    await debug.press("F5");
    await debug.waitForStop(at("train_step", file, await workspace.line(file, "break")));
    const widget = page.locator(".exception-widget");
    await expect(widget).toContainText("Graph break: Call to `torch._dynamo.graph_break()`");
    await expect(widget.locator(".description")).toContainText(/^User-inserted graph break.*\nThen: .*\nHint \(not tried\): /);
    await expect(widget.locator(".stack-trace a.link"), "torch's page can be clicked").toContainText("https://");
    await expect(debug.headline()).toHaveText("Graph break");
    await expect(debug.row("variables", "scaled =")).toContainText("Tensor f32[2, 3]");
    await picture("graph-break");
});
