/** Stopping while Dynamo traces, in VS Code's own surfaces. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

const FILE = "basic.py";

test("a breakpoint by gutter click shows symbolic locals; steps go on from there", async ({ vscode, workspace, picture }) => {
    const { debug, page } = vscode;
    const first = await workspace.line(FILE, "first");
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(first);
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", FILE, first));
    const caller = at("main", FILE, await workspace.line(FILE, "eager_call"));
    await expect.poll(() => debug.texts("call-stack")).toContainEqual(expect.stringMatching(caller));
    await expect(debug.row("variables", "x =")).toContainText("Tensor f32[3, 4]");
    await expect(debug.row("variables", "y =")).toContainText("requires_grad");
    await expect(debug.row("variables", "mode =")).toContainText("'add'");

    await page.keyboard.press("F10");
    await debug.waitForStop(at("compute", FILE, await workspace.line(FILE, "branch")));
    await expect(debug.row("variables", "z =")).toContainText("Tensor f32[3, 4]");
    await expect.poll(() => vscode.editor.lineText(first)).toContain("z: f32[3, 4]");
    await debug.expand("z =");
    await expect(debug.row("variables", "dtype =")).toContainText("float32");
    await picture("compile-time");

    await page.keyboard.press("F10");
    await debug.waitForStop(at("compute", FILE, await workspace.line(FILE, "call")));
    await page.keyboard.press("F11");
    await debug.waitForStop(at("scale", FILE, await workspace.line(FILE, "in_helper")));
    await page.keyboard.press("Shift+F11");
    // Back in the line of the call: what it returned is not stored yet.
    await debug.waitForStop(at("compute", FILE, await workspace.line(FILE, "call")));
    await page.keyboard.press("F10");
    await debug.waitForStop(at("compute", FILE, await workspace.line(FILE, "after_call")));
    await page.keyboard.press("F5");
    await debug.waitForEnd();
    await expect(debug.consoleRows().filter({ hasText: "result 87" }).first()).toBeVisible();
});

test("hovers, watches and the Debug Console evaluate", async ({ vscode, workspace, picture }) => {
    const { debug, page } = vscode;
    const line = await workspace.line(FILE, "after_call");
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", FILE, line));
    await expect(await vscode.editor.hover(line, "z")).toContainText("Tensor f32[3, 4]");
    await expect(await debug.watch("z.shape[0] * 2")).toContainText("6");
    await expect((await debug.evaluate("tuple(z.shape)")).last()).toContainText("(3, 4)");
    await expect((await debug.evaluate("ctx.print_graph()")).filter({ hasText: "l_x_ + l_y_" }).first()).toBeVisible();
    await (await debug.console()).click();
    await page.keyboard.type("z.sha");
    await page.keyboard.press("Control+Space");
    await expect(page.locator(".suggest-widget .monaco-list-row", { hasText: "shape" }).first()).toBeVisible();
    await picture("evaluate");
});

test("a condition, a log message and a hit count decide at a breakpoint", async ({ vscode, workspace }) => {
    const { debug } = vscode;
    const [inLoop, before] = [await workspace.line("graph_break.py", "in_loop"), await workspace.line("graph_break.py", "before_loop")];
    await vscode.openFile("graph_break.py");
    await vscode.editor.setBreakpoint(inLoop);
    await vscode.editor.editBreakpoint(inLoop, "Expression", "index == 2");
    await vscode.editor.setBreakpoint(before);
    await vscode.editor.editBreakpoint(before, "Log Message", "rounds is {rounds}");
    await vscode.startDebugging();
    await debug.waitForStop(at("train_step", "graph_break.py", inLoop));
    await expect(debug.row("variables", "index =")).toContainText("2");
    await expect(debug.consoleRows().filter({ hasText: "rounds is 3" }).first()).toBeVisible();
});

test("the mode of a breakpoint is chosen in its box", async ({ vscode, workspace, picture }) => {
    const { debug, page } = vscode;
    const line = await workspace.line(FILE, "first");
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(line);
    // VS Code knows the modes from the first session on.
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", FILE, line));
    await vscode.editor.editBreakpoint(line, "Mode", "Compile-time");
    await expect(debug.row("breakpoints", FILE)).toBeVisible();
    await picture("breakpoint-mode");
    await page.keyboard.press("Control+Shift+F5");
    await debug.waitForStop(at("compute", FILE, line));
});

test("a graph break restarts the trace and resumes in a frame of its own", async ({ vscode, workspace }) => {
    const { debug } = vscode;
    const after = await workspace.line("graph_break.py", "after_break");
    await vscode.openFile("graph_break.py");
    await vscode.editor.setBreakpoint(after);
    await vscode.startDebugging();
    await debug.waitForStop(new RegExp(`^train_step \\(resumed at line \\d+\\) graph_break.py ${after}:`));
});

test("the graph traced so far opens as a document", async ({ vscode, workspace, picture }) => {
    const line = await workspace.line(FILE, "total");
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await vscode.debug.waitForStop(at("compute", FILE, line));
    await vscode.command("torch.compile: Open Graph of This Frame");
    await expect(vscode.page.locator(".tab.active", { hasText: "graph of compute.py" })).toBeVisible();
    await expect.poll(() => vscode.editor.text()).toContain("doubled = z * 2  # f32[3, 4]");
    const keyword = vscode.editor.area.locator(".view-line span", { hasText: /^def$/ }).first();
    const plain = vscode.editor.area.locator(".view-line span", { hasText: /^compute$/ }).first();
    const colour = (part: typeof keyword): Promise<string> => part.evaluate((element) => getComputedStyle(element).color);
    expect(await colour(keyword), "keywords are coloured").not.toBe(await colour(plain));
    await picture("graph");
});
