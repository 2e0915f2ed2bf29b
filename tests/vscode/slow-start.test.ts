/** A slow start says what it waits for, and can be cancelled before and after the debug server has started. */

import { chmod } from "node:fs/promises";
import { join } from "node:path";

import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";
import { launchJson, type Workspace } from "./harness/workspace.js";

const STAGE = { timeout: 60_000 };

// Not the forking Python: its programs have already imported torch.
test.use({ settings: { "dynamo.python": python() } });

/** Makes a slow interpreter, and a launch.json that names it. */
async function chooseSlowPython(workspace: Workspace, seconds: number): Promise<void> {
    const path = join(workspace.folder, "slow-python");
    await workspace.write("slow-python", `#!/bin/sh\nsleep ${seconds}\nexec ${python()} "$@"\n`);
    await chmod(path, 0o755);
    await workspace.write(".vscode/launch.json", launchJson({ python: path }));
}

test("each stage of a slow start is named while it lasts", async ({ vscode, workspace, picture }) => {
    const { debug, page } = vscode;
    const toasts = page.locator(".notification-toast");
    await chooseSlowPython(workspace, 5);
    await vscode.openFile("plain.py");
    await vscode.startDebugging();
    await expect(toasts.filter({ hasText: "looking for dynamo-dap in the environment" })).toBeVisible(STAGE);
    await expect(toasts.filter({ hasText: "starting the debug server" })).toBeVisible(STAGE);
    const program = toasts.filter({ hasText: "Starting plain.py" });
    await expect(program).toContainText("slow-python", STAGE);
    await expect(program.getByRole("button", { name: "Cancel" })).toBeVisible();
    await picture("slow-start");
    await debug.waitForEnd();
    await expect(debug.consoleRows().filter({ hasText: "no newline at the end" }).first()).toBeVisible();
    await expect(toasts, "nothing is left of it").toHaveCount(0);
});

test("a start can be cancelled before there is a session", async ({ vscode, workspace }) => {
    const { debug, page } = vscode;
    await chooseSlowPython(workspace, 60);
    await vscode.openFile("plain.py");
    const toast = page.locator(".notification-toast", { hasText: "looking for dynamo-dap" });
    await vscode.startDebugging();
    await expect(toast).toBeVisible(STAGE);
    await toast.getByRole("button", { name: "Cancel" }).click();
    await expect(page.locator(".notification-toast")).toHaveCount(0);
    await expect(page.locator(".monaco-dialog-box")).toHaveCount(0);
    await debug.waitForEnd();
});

test("a program that imports torch slowly says so, and ends when the start is cancelled", async ({ vscode, workspace }) => {
    const { debug, page } = vscode;
    // A slow module instead of torch.
    await workspace.write("torch.py", "import time\ntime.sleep(60)\n");
    await workspace.write("imports.py", "import torch\nprint('imported')\n");
    await vscode.openFile("imports.py");
    await vscode.startDebugging();
    const toast = page.locator(".notification-toast", { hasText: "importing torch in the program" });
    await expect(toast).toBeVisible(STAGE);
    await toast.getByRole("button", { name: "Cancel" }).click();
    await debug.waitForEnd();
    await expect(debug.consoleRows().filter({ hasText: "imported" })).toHaveCount(0);
    await expect(page.locator(".notification-toast")).toHaveCount(0);
});
