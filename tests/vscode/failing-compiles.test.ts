/** Failing compiles: finds the wrong stage and the smallest failing graph, by commands and from a debug session. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";

import type { Locator } from "@playwright/test";

import { LATE } from "./harness/late.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

const DECOMPOSED = `import torch
from torch._inductor.decomposition import decompositions


def failing(x):
    raise ValueError("not decomposed")


decompositions[torch.ops.aten.silu.default] = failing


@torch.compile
def step(x):
    y = torch.cos(x)
    return torch.nn.functional.silu(y)


step(torch.arange(8.0))
`;
const FAILING = `import torch


@torch.compile(backend="relu_compile_error_TESTING_ONLY")
def f(x):
    return torch.cos(torch.relu(torch.sin(x)))


f(torch.randn(4))
`;

test("bisect finds the wrong stage, and its line is one click away", async ({ vscode, workspace, picture }) => {
    test.setTimeout(4 * 60_000);
    const { editor, page } = vscode;
    const told = (text: string): Locator => page.locator(".notification-toast", { hasText: text });
    await workspace.write("decomposed.py", DECOMPOSED);
    await vscode.openFile("decomposed.py");
    await vscode.command("torch.compile: Bisect Compiler Stages…");
    await vscode.quickInput.choose("It ends without an error");
    const progress = told("Bisecting the compiler stages of decomposed.py");
    await expect(progress, "how far it is").toContainText("uncompiled: right", LATE);
    await progress.getByRole("button", { name: "Cancel" }).click();
    await expect(told("Cancelled.")).toBeVisible(LATE);
    await vscode.command("torch.compile: Bisect Compiler Stages…");
    await vscode.quickInput.choose("It ends without an error");
    const found = told("Wrong: aot_eager_decomp_partition");
    await expect(found).toContainText("the decomposition of aten.silu.default", LATE);
    await picture("bisected");
    await found.getByRole("button", { name: "Go to decomposed.py:15" }).click();
    await expect(page.locator(".editor-statusbar-item, .statusbar-item", { hasText: "Ln 15," })).toBeVisible();
    await expect(editor.area.locator(".view-line", { hasText: "silu(y)" })).toBeVisible();
});

test("one click minifies a backend failure, and the result is debugged", async ({ vscode, workspace, picture }) => {
    test.setTimeout(5 * 60_000);
    const { debug, page } = vscode;
    const told = (text: string): Locator => page.locator(".notification-toast", { hasText: text });
    await workspace.write("failing.py", FAILING);
    await workspace.write(".vscode/launch.json", launchJson({}));
    await vscode.openFile("failing.py");
    await vscode.startDebugging();
    const offered = told("The backend failed to compile failing.py.");
    await expect(offered.getByRole("button", { name: "Bisect Stages" })).toBeVisible(LATE);
    await picture("backend-failure");
    await offered.getByRole("button", { name: "Minify Graph" }).click();
    const done = told("It fails with:");
    await expect(done).toContainText("ReluCompileError", LATE);
    await expect(page.locator(".tab.active", { hasText: "minified.py" })).toBeVisible();
    await debug.press("Shift+F5");
    await debug.waitForEnd();
    await done.getByRole("button", { name: "Keep in launch.json" }).click();
    const kept = told("Minified: failing.py is in launch.json.");
    await expect(kept).toBeVisible();
    expect(await readFile(join(workspace.folder, ".vscode/launch.json"), "utf8")).toContain("minified.py");
    await kept.getByRole("button", { name: "Debug It" }).click();
    await expect(debug.row("call-stack", "minified.py"), "it stops where it fails").toBeVisible(LATE);
    await picture("minified");
});
