/** Steps through the bytecode that Dynamo generated, as VS Code shows it. */

import { at } from "./harness/debug-panes.js";
import { LATE } from "./harness/late.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

const FILE = "side_effects.py";
const GENERATED = /^record \(generated #\d+\) /;

test("generated code is stepped as statements, as instructions, and in the Disassembly view", { tag: "@picture" }, async ({
    vscode,
    workspace,
    picture,
}) => {
    const { debug, editor, page } = vscode;
    await workspace.write(".vscode/launch.json", launchJson({ mode: "run-time", stopOnGeneratedCode: true, internalConsoleOptions: "neverOpen" }));
    await vscode.openFile(FILE);
    await vscode.startDebugging();
    await debug.waitForStop(GENERATED);
    await debug.foldPane("Watch", false);
    const tab = page.locator(".tab.active");
    await expect(tab.filter({ hasText: /^record #\d+\.py/ })).toBeVisible();
    await expect(debug.headline()).toHaveText(/^Running record \(generated #\d+\)$/);
    await expect.poll(() => editor.text()).toContain("def record(x, d, log, state):");
    await expect(debug.row("variables", "x =")).toContainText("Tensor f32[3]");
    expect(await debug.offers("x ="), "real values can be set").toContain("Set Value");

    // A step is a statement.
    await expect.poll(() => editor.currentLine()).toContain("record_pregraph_bytecode_enter()");
    await debug.press("F10");
    await expect.poll(() => editor.currentLine(), "the step ends").toContain("record_pregraph_bytecode_exit(");

    // A breakpoint in the listing stops before its statement.
    const line = await editor.lineWith("d.update(");
    await editor.setBreakpoint(line);
    await debug.press("F5");
    await expect.poll(() => editor.currentLine(), LATE).toContain("d.update({'result': graph_out_0[1]})");
    const store = at("record", FILE, await workspace.line(FILE, "store_dict"));
    await expect.poll(() => debug.texts("call-stack")).toContainEqual(expect.stringMatching(store));
    // Make room for the variables.
    await debug.foldPane("Breakpoints", false);
    await debug.expand("graph_out_0 =");
    await expect(await editor.hover(line, "graph_out_0")).toContainText("Tensor f32[3] cpu");
    await expect(await editor.hover(line, "line"), "what there is no room for").toContainText("apply: d.update({'result': graph_out_0[1]})");
    await page.mouse.move(10, 10);
    await picture("run-time");

    // One click shows instructions instead; a step then runs a group of instructions.
    await page.locator(".editor-actions").getByRole("button", { name: "Show Generated Code as Instructions" }).click();
    await expect(tab.filter({ hasText: /^record #\d+\.dynamo/ })).toBeVisible();
    await expect.poll(() => editor.currentLine()).toMatch(/[┌╶] apply line 17: d\.update/);
    await picture("instructions");
    await vscode.command("Open Disassembly View");
    for (const instruction of [/PRECALL 1/, /\bCALL 1/, /POP_TOP/]) {
        const row = debug.instructionRow().filter({ hasText: instruction });
        await expect(row, `stopped at ${instruction.source}`).toBeVisible();
        await debug.press("F10");
    }
    await expect(debug.instructionRow()).toContainText("BUILD_LIST 0");
    await debug.foldVariables("Locals", false);
    await debug.expand("Value Stack");
    await expect(await debug.reveal("variables", "(top)")).toContainText("Tensor f32[]");
    await picture("disassembly");
});

test("an instruction of generated code is patched from the next call on, and reverted", async ({ vscode, workspace }) => {
    const { debug, editor, page } = vscode;
    await workspace.write(".vscode/launch.json", launchJson({ stopOnGeneratedCode: true, listing: "instructions", internalConsoleOptions: "neverOpen" }));
    await vscode.openFile("patched_code.py");
    await vscode.startDebugging();
    await debug.waitForStop(/^record \(generated #0\) /);
    await vscode.quickInput.goToLine(34);
    const constant = (await editor.lineWith("LOAD_CONST         3")) - 1;
    await vscode.command("Patch This Instruction");
    await vscode.quickInput.answer(`${constant}: LOAD_CONST 30`);
    await expect(page.locator(".notification-toast")).toContainText("Patched: the next call runs LOAD_CONST 30 instead of LOAD_CONST 3.");
    await debug.press("F5");
    await debug.waitForStop(/^record \(generated #1: #0 patched\) /);
    await expect.poll(() => editor.text()).toContain("[patched, was LOAD_CONST 3]");
    await vscode.command("Revert All Bytecode Patches");
    await expect(page.locator(".notification-toast").first()).toContainText("Reverted patched instructions: 1.");
    await debug.press("F5");
    await debug.waitForStop(/^record \(generated #0\) /);
});

test("the mode of a breakpoint is chosen in its box; a restart stops where it says", { tag: "@core" }, async ({ vscode, workspace, picture }) => {
    const { debug, editor, page } = vscode;
    const line = await workspace.line(FILE, "append");
    await vscode.openFile(FILE);
    await editor.setBreakpoint(line);
    // VS Code knows the modes only after the first session has begun.
    await vscode.startDebugging();
    await debug.waitForStop(at("record", FILE, line));
    await expect(debug.headline()).toHaveText("Tracing record [0/0]");
    await editor.editBreakpoint(line, "Mode", "Run-time");
    await debug.foldPane("Watch", false);
    await debug.reveal("breakpoints", FILE);
    await picture("breakpoint-mode");
    await page.keyboard.press("Control+Shift+F5");
    await debug.waitForStop(GENERATED);
    await expect.poll(() => debug.texts("call-stack")).toContainEqual(expect.stringMatching(at("record", FILE, line)));
});

test("a breakpoint of mode Compile-time stops while Dynamo traces, and not in ordinary Python", async ({ vscode, workspace }) => {
    const { debug, editor, page } = vscode;
    const [call, print, first] = await Promise.all(["eager_call", "print", "first"].map((marker) => workspace.line("basic.py", marker)));
    if (call === undefined || print === undefined || first === undefined) {
        throw new Error("a marker is missing");
    }
    await vscode.openFile("basic.py");
    await editor.setBreakpoint(call);
    await vscode.startDebugging();
    await debug.waitForStop(at("main", "basic.py", call));
    await editor.editBreakpoint(call, "Mode", "Compile-time");
    await editor.setBreakpoint(first);
    await editor.editBreakpoint(first, "Mode", "Compile-time");
    await editor.setBreakpoint(print);
    await editor.editBreakpoint(print, "Mode", "Eager");
    await page.keyboard.press("Control+Shift+F5");
    await debug.waitForStop(at("compute", "basic.py", first));
    await expect(debug.headline()).toHaveText("Tracing compute [0/0]");
    await debug.press("F5");
    await debug.waitForStop(at("main", "basic.py", print));
});

test("a breakpoint of mode Backward stops when a gradient is known, and steps go back through the lines", async ({ vscode, workspace }) => {
    const { debug, editor } = vscode;
    const file = "distances.py";
    const [root, difference] = await Promise.all(["root", "difference"].map((marker) => workspace.line(file, marker)));
    if (root === undefined || difference === undefined) {
        throw new Error("a marker is missing");
    }
    await vscode.openFile(file);
    await editor.setBreakpoint(root);
    await vscode.startDebugging();
    await debug.waitForStop(at("Distances.apart", file, root));
    await editor.editBreakpoint(root, "Mode", "Backward");
    await debug.press("F5");
    await expect(debug.headline()).toHaveText("Backward pass of Distances.forward [0/0]");
    await debug.waitForStop(at("Distances.apart", file, root));
    await debug.expand("difference =");
    await expect(await debug.reveal("variables", "grad =")).toBeVisible();
    await debug.press("F10");
    await debug.waitForStop(at("Distances.apart", file, difference));
    await expect(debug.headline()).toHaveText("Backward pass of Distances.forward [0/0]");
});
