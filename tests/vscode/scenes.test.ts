/** The five main scenes, each a test and an animation: `make pictures` runs them in a dark and in a light theme. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { at } from "./harness/debug-panes.js";
import { extensionRoot, repository } from "./harness/places.js";
import { expect, test } from "./harness/test.js";
import { launchJson, type Workspace } from "./harness/workspace.js";
import type { Workbench } from "./harness/workbench.js";

// Pages show these pictures at about 60 % of their width.
test.use({ scale: 1.25 });

const BASIC = "basic.py";

/** Opens a program, hides the panel below the editor, and stops at the line that begins with a text. */
async function stopAt(vscode: Workbench, workspace: Workspace, name: string, text: string, begin: string, frame: string): Promise<void> {
    const line = text.split("\n").findIndex((each) => each.trimStart().startsWith(begin)) + 1;
    await workspace.write(".vscode/launch.json", launchJson({ internalConsoleOptions: "neverOpen" }));
    await workspace.write(name, text);
    await vscode.openFile(name);
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await vscode.debug.waitForStop(at(frame, name, line));
    await expect(vscode.debug.rows("variables").first()).toBeVisible();
}

async function example(name: string): Promise<string> {
    return readFile(join(extensionRoot, "media", "examples", name), "utf8");
}

/** The first program on a page of `docs/tutorials`. */
async function tutorial(page: string, name: string): Promise<string> {
    const text = await readFile(join(repository, "docs", "tutorials", page), "utf8");
    return text.split(`\`\`\`python title="${name}"\n`)[1]?.split("```\n")[0] ?? "";
}

/** Ticks a filter of the Breakpoints pane, which VS Code rebuilds when a session begins. */
async function tick({ debug, page }: Workbench, filter: string): Promise<void> {
    await debug.foldPane("Watch", false);
    await debug.foldPane("Call Stack", false);
    // The tooltip of the row under the mouse could cover the box.
    await page.mouse.move(900, 600);
    await expect(page.locator(".context-view .hover-contents")).toBeHidden();
    const box = debug.row("breakpoints", filter).getByRole("checkbox");
    await box.click();
    await expect(box).toBeChecked();
}

test("scene cached-call: a breakpoint stops in the first call and in a cached one", async ({ vscode, workspace, shoot }) => {
    const { debug } = vscode;
    const first = await workspace.line(BASIC, "first");
    await workspace.write(".vscode/launch.json", launchJson({ internalConsoleOptions: "neverOpen" }));
    await vscode.openFile(BASIC);
    await expect(vscode.page.getByText("Debug tracing")).toBeVisible();
    await shoot("A function that torch.compile compiles");
    await vscode.editor.setBreakpoint(first);
    await debug.foldPane("Watch", false);
    await shoot("Click left of a line, and press F5");
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", BASIC, first));
    await expect(debug.row("variables", "x =")).toContainText("Tensor f32[3, 4]");
    await shoot("It stops while Dynamo traces the function: values are symbolic", 3);
    await debug.press("F10");
    await debug.waitForStop(at("compute", BASIC, await workspace.line(BASIC, "branch")));
    await expect(debug.row("variables", "z =")).toContainText("Tensor f32[3, 4]");
    await shoot("F10 steps over a line");
    await debug.press("F5");
    await expect(debug.headline()).toHaveText("Call 2 of compute [0/0]");
    await debug.waitForStop(at("compute", BASIC, first));
    await expect(debug.row("variables", "z =")).toHaveCount(0);
    await shoot("F5: the next call runs compiled code, and stops all the same", 3);
    await expect(async () => {
        await debug.expand("x =");
        await expect(await debug.reveal("variables", "2 =", "[1.0, 1.0")).toBeVisible({ timeout: 3000 });
    }).toPass();
    await shoot("with the values of that call", 4);
    await debug.press("Shift+F5");
    await debug.waitForEnd();
});

test("scene recompile: the stop says which value changed", async ({ vscode, workspace, shoot }) => {
    const { debug, page } = vscode;
    await stopAt(vscode, workspace, "recompile.py", await example("recompile.py"), "if mode", "scaled");
    await shoot("Stopped in the first compile of a function");
    await tick(vscode, "Recompiles");
    await shoot("Tick Recompiles, and press F5");
    await debug.foldPane("Call Stack", true);
    await debug.press("F5");
    await expect(debug.headline()).toHaveText("Recompile", { timeout: 60_000 });
    await expect(page.locator(".exception-widget")).toContainText("value now: 'same'");
    await expect(debug.rows("variables").first()).toBeVisible();
    await shoot("It stops where torch compiles again, with the value that changed", 4);
    await debug.press("Shift+F5");
    await debug.waitForEnd();
});

test("scene nan: the stop is at the line that made it", async ({ vscode, workspace, shoot }) => {
    const { debug, page } = vscode;
    await stopAt(vscode, workspace, "nan.py", await example("nan.py"), "print(share", "<module>");
    await shoot("One of the calls of this function returns NaN");
    await tick(vscode, "NaN and Inf");
    await shoot("Tick NaN and Inf, and press F5");
    await debug.foldPane("Call Stack", true);
    await debug.press("F5");
    await expect(page.locator(".exception-widget")).toContainText("Cause: your code", { timeout: 60_000 });
    await expect(debug.row("variables", "Locals")).toBeVisible();
    await shoot("It stops at the operation that made the first NaN, and says the cause", 4);
    await debug.press("Shift+F5");
    await debug.waitForEnd();
});

test("scene mismatch: a wrong backend is found at the line that differs", async ({ vscode, workspace, shoot }) => {
    const { compiles, debug, page } = vscode;
    await stopAt(vscode, workspace, "swish.py", await tutorial("mismatch.md", "swish.py"), "swish(", "<module>");
    await shoot("The backend of this function has a bug");
    await tick(vscode, "Differs from Eager");
    await shoot("Tick Differs from Eager, and press F5");
    await debug.foldPane("Call Stack", true);
    await debug.press("F5");
    await expect(page.locator(".exception-widget")).toContainText("Cause: the backend (fast_math)", { timeout: 60_000 });
    await expect(debug.row("variables", "Locals")).toBeVisible();
    await shoot("It stops at the first line whose result differs from eager", 4);
    await compiles.show("Compare");
    await expect(await compiles.reveal("Compare", "negative = torch.exp(-x)")).toBeVisible();
    await shoot("The view Compare has every line of the call", 4);
    await debug.press("Shift+F5");
    await debug.waitForEnd();
});

test("scene time-travel: Step Back goes to earlier lines of a trace", async ({ vscode, workspace, shoot }) => {
    const { compiles, debug, page } = vscode;
    await stopAt(vscode, workspace, BASIC, await readFile(join(workspace.folder, BASIC), "utf8"), "total = z.sum()", "compute");
    await expect(debug.row("variables", "z =")).toBeVisible();
    await shoot("Stopped near the end of a function");
    const back = page.locator(".debug-toolbar, .part.sidebar").getByRole("button", { name: "Step Back" }).first();
    for (const marker of ["after_call", "call"]) {
        await back.click();
        await debug.waitForStop(at("compute", BASIC, await workspace.line(BASIC, marker)));
        await expect(debug.row("variables", "shape =")).toHaveCount(0);
        await shoot("Step Back goes to the line before, with the values of that time", 1.8);
    }
    await compiles.show("Timeline");
    await expect(compiles.title("Timeline")).toContainText("of 7");
    await shoot("The view Timeline has every statement that was traced", 4);
    await debug.press("Shift+F5");
    await debug.waitForEnd();
});
