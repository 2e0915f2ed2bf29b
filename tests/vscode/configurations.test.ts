/** Starts with and without launch.json and from the editor's buttons, and the messages if a start fails. */

import { mkdir, rm, symlink } from "node:fs/promises";
import { join } from "node:path";

import { run } from "./harness/commands.js";
import { LATE } from "./harness/late.js";
import { cache } from "./harness/places.js";
import { python } from "./harness/python.js";
import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

test("F5 without a launch.json debugs the file in the editor", { tag: "@core" }, async ({ vscode, workspace }) => {
    await workspace.remove(".vscode/launch.json");
    await vscode.openFile("basic.py");
    const line = await workspace.line("basic.py", "first");
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await vscode.debug.waitForStop(at("compute", "basic.py", line));
});

test("F5 in the Output panel debugs the file in the editor", async ({ vscode, workspace }) => {
    await workspace.remove(".vscode/launch.json");
    await vscode.openFile("basic.py");
    await vscode.editor.setBreakpoint(await workspace.line("basic.py", "first"));
    await vscode.command("Output: Focus on Output View");
    const output = vscode.page.locator(".panel .output-view .monaco-editor, .panel [id='workbench.panel.output'] .monaco-editor").first();
    await output.locator(".view-lines").click();
    await expect(output).toHaveClass(/focused/);
    await vscode.startDebugging();
    await vscode.debug.waitForStop(/^compute basic.py/);
});

for (const withLaunchJson of [false, true]) {
    test(`F5 in a page debugs the Python file that was last in front, ${withLaunchJson ? "with" : "without"} a launch.json`, async ({ vscode, workspace }) => {
        if (withLaunchJson) {
            await workspace.write(".vscode/launch.json", launchJson({ type: "dynamo", request: "launch", name: "x", program: "${file}" }));
        } else {
            await workspace.remove(".vscode/launch.json");
        }
        await vscode.openFile("basic.py");
        await vscode.editor.setBreakpoint(await workspace.line("basic.py", "first"));
        await vscode.command("Help: Welcome");
        await expect(vscode.page.locator(".tab.active", { hasText: "Walkthrough" })).toBeVisible();
        await vscode.startDebugging();
        if (!withLaunchJson) {
            await vscode.quickInput.choose("torch.compile debugger");
        }
        await vscode.debug.waitForStop(/^compute basic.py/);
    });
}

test("the button on a Python file debugs it", async ({ vscode, workspace }) => {
    await workspace.remove(".vscode/launch.json");
    await vscode.openFile("basic.py");
    const line = await workspace.line("basic.py", "first");
    await vscode.editor.setBreakpoint(line);
    await vscode.page.getByRole("button", { name: "Debug This File with the torch.compile Debugger" }).click();
    await vscode.debug.waitForStop(at("compute", "basic.py", line));
});

test("the link over a compiled function stops at its first line", async ({ vscode, workspace }) => {
    await vscode.openFile("basic.py");
    await vscode.editor.area.locator(".codelens-decoration a", { hasText: "Debug tracing" }).click();
    await vscode.debug.waitForStop(at("compute", "basic.py", await workspace.line("basic.py", "first")));
});

test("ready-made configurations are offered", async ({ vscode }) => {
    await vscode.openFile("basic.py");
    await vscode.command("Debug: Select and Start Debugging");
    await vscode.quickInput.choose("torch.compile debugger");
    const offered = vscode.page.locator(".quick-input-list .monaco-list-row");
    for (const name of ["current file", "module", "pytest"]) {
        await expect(offered.filter({ hasText: `Debug torch.compile: ${name}` }).first()).toBeVisible();
    }
});

test("launch.json completes every option with its description", async ({ vscode, workspace, picture }) => {
    await workspace.write(".vscode/launch.json", launchJson({}).replace('"name": "x",', '"name": "x",\n            \n'));
    await vscode.openFile(".vscode/launch.json");
    await vscode.editor.goToLine(6);
    await vscode.page.keyboard.press("End");
    await vscode.page.keyboard.type('"');
    const suggestions = await vscode.editor.suggest("backend");
    for (const option of ["args", "backend", "compareEvery"]) {
        await expect(suggestions.filter({ hasText: option }).first()).toBeVisible();
    }
    await vscode.page.keyboard.type("stopOnG");
    await expect(suggestions.first()).toContainText("stopOnGeneratedCode");
    await expect(async () => {
        await vscode.page.keyboard.press("Control+Space");
        const details = vscode.page.locator(".suggest-details");
        await expect(details).toContainText("every function that Dynamo generated.", { timeout: 2000 });
    }).toPass();
    await picture("launch-json");
});

test("launch.json offers ready-made configurations as snippets", async ({ vscode, workspace }) => {
    const { editor, page } = vscode;
    const empty = JSON.stringify({ version: "0.2.0", configurations: [] }, null, 4).replace("[]", "[\n        \n    ]");
    await workspace.write(".vscode/launch.json", empty);
    await vscode.openFile(".vscode/launch.json");
    await editor.goToLine(4);
    await page.keyboard.press("End");
    const suggestions = await editor.suggest("Node.js: Launch Program");
    await page.keyboard.type("torch");
    for (const name of ["Current File", "Module", "pytest", "Tracing Only", "Generated Code", "Attach"]) {
        await expect(suggestions.filter({ hasText: `torch.compile: ${name}` }).first()).toBeVisible();
    }
    await suggestions.filter({ hasText: "torch.compile: Tracing Only" }).first().dblclick();
    await expect.poll(() => editor.text()).toContain('"mode": "compile-time"');
    await page.keyboard.press("Control+S");
    await expect(page.locator(".editor-group-container .squiggly-error, .editor-group-container .squiggly-warning")).toHaveCount(0);

    const line = await workspace.line("basic.py", "first");
    await vscode.openFile("basic.py");
    await editor.setBreakpoint(line);
    await vscode.startDebugging();
    await vscode.debug.waitForStop(at("compute", "basic.py", line));
    await expect.poll(() => vscode.debug.texts("call-stack")).toContainEqual(expect.stringMatching(/^main basic.py /));
});

test("a wrong option is reported before anything starts", async ({ vscode, workspace }) => {
    await workspace.write(".vscode/launch.json", launchJson({ mode: "tracing", program: "nowhere/at/all.py" }));
    await vscode.openFile("basic.py");
    await vscode.startDebugging();
    const dialog = await vscode.dialog();
    await expect(dialog).toContainText('"mode" must be one of "both", "compile-time", "run-time", not "tracing".');
    await expect(dialog.getByRole("button", { name: "Open 'launch.json'" })).toBeVisible();
});

test("a missing program is reported", async ({ vscode, workspace }) => {
    await workspace.write(".vscode/launch.json", launchJson({ program: "${workspaceFolder}/missing.py" }));
    await vscode.openFile("basic.py");
    await vscode.startDebugging();
    await expect(await vscode.dialog()).toContainText(`${workspace.folder}/missing.py does not exist`);
});

test("F5 on a file without a name asks for one", async ({ vscode, workspace }) => {
    const { editor, page } = vscode;
    await workspace.remove(".vscode/launch.json");
    await page.keyboard.press("Control+P");
    await page.locator(".quick-input-widget input").first().fill(">New Untitled Text File");
    await vscode.quickInput.choose("File: New Untitled Text File");
    await expect(page.locator(".tab.active", { hasText: "Untitled-1" })).toBeVisible();
    await vscode.command("Change Language Mode");
    await page.getByPlaceholder("Select Language Mode").fill("Python");
    await vscode.quickInput.choose("Python");
    await expect(page.locator(".statusbar-item", { hasText: "Python" }), "it is a Python file").toBeVisible();
    await editor.area.locator(".view-lines").first().click();
    await page.keyboard.type("print('from a new file')");
    await expect.poll(() => editor.text()).toBe("print('from a new file')");
    await vscode.startDebugging(page.locator(".quick-input-title", { hasText: "Save As" }));
    await vscode.quickInput.saveAs(join(workspace.folder, "named.py"));
    await vscode.debug.waitForEnd();
    await vscode.debug.console();
    await expect(vscode.debug.consoleRows().filter({ hasText: "from a new file" }).first()).toBeVisible();
});

test("an environment without dynamo-dap is offered an installation", async ({ vscode, workspace, picture }) => {
    const environment = join(cache, "environment-without-dynamo-dap");
    await rm(environment, { recursive: true, force: true });
    await mkdir(cache, { recursive: true });
    await run(python(), ["-m", "venv", "--without-pip", environment]);
    // With "-I", Python ignores PYTHONPATH.
    const changes = { python: [join(environment, "bin/python"), "-I"] };
    await workspace.write(".vscode/launch.json", launchJson(changes));
    await vscode.openFile("basic.py");
    await vscode.startDebugging();
    const dialog = await vscode.dialog();
    await expect(dialog).toContainText(`aren't installed in this environment (${environment}/bin/python -I).`);
    await expect(dialog.getByRole("button", { name: "Choose Interpreter" })).toBeVisible();
    await picture("missing-package");
    await dialog.getByRole("button", { name: "Install" }).click();
    const notification = vscode.page.locator(".notification-toast", { hasText: /Installing dynamo-dap into .* failed/ });
    await expect(notification, "a failing installation is told, with pip's reason").toContainText("No module named pip");
    await symlink(join(python(), "../.."), join(workspace.folder, ".venv"));
    await notification.getByRole("button", { name: "Choose Interpreter" }).click();
    const choice = vscode.page.locator(".quick-input-list .monaco-list-row", { hasText: "torch 2." }).first();
    await expect(choice, "environments with torch come first").toBeVisible(LATE);
    await vscode.page.keyboard.press("Escape");
});
