/** The pictures of the walkthrough that no other test takes: `make screenshots`. Each shows what its step leads to. */

import { readFile, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";

import { run } from "./harness/commands.js";
import { at } from "./harness/debug-panes.js";
import { extensionRoot, repository } from "./harness/places.js";
import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";
import type { Workspace } from "./harness/workspace.js";

// No interpreter is chosen.
test.use({ settings: {} });

/** Copies an example of the walkthrough into the workspace. */
async function copyExample(workspace: Workspace, name: string): Promise<void> {
    await workspace.remove(".vscode/launch.json");
    await workspace.write(name, await readFile(join(extensionRoot, "media", "examples", name), "utf8"));
}

test("picture install: an environment without the package", { tag: "@picture" }, async ({ vscode, workspace, picture }) => {
    await copyExample(workspace, "breakpoint.py");
    await run(python(), ["-m", "venv", join(workspace.folder, ".venv")]);
    await run(python(), ["-m", "tests.release.link_torch", join(workspace.folder, ".venv")], { cwd: repository });
    await vscode.openFile("breakpoint.py");
    await vscode.startDebugging();
    await expect((await vscode.dialog()).getByRole("button", { name: "Install" })).toBeVisible();
    await picture("install");
});

test("picture nan: the line that makes NaN", { tag: "@picture" }, async ({ vscode, workspace, picture }) => {
    const { debug, editor } = vscode;
    await copyExample(workspace, "nan.py");
    await symlink(dirname(dirname(python())), join(workspace.folder, ".venv"));
    await vscode.openFile("nan.py");
    await editor.setBreakpoint(1);
    await vscode.startDebugging();
    await debug.waitForStop(at("<module>", "nan.py", 1));
    await (await debug.reveal("breakpoints", "NaN and Inf")).getByRole("checkbox").click();
    await debug.press("F5");
    await debug.waitForStop(/^share nan.py/);
    await expect(vscode.page.locator(".exception-widget")).toContainText("Cause: your code");
    await expect(debug.row("variables", "whole =")).toBeVisible();
    await vscode.page.mouse.move(1000, 650);
    await expect(vscode.page.getByText("Load More Stack Frames")).toHaveCount(0);
    await expect(vscode.page.locator(".workbench-hover")).toHaveCount(0);
    await picture("nan");
});

test("picture report: a record's report beside its findings", { tag: "@picture" }, async ({ vscode, workspace, picture }) => {
    const { compiles, page } = vscode;
    await copyExample(workspace, "recompile.py");
    await symlink(dirname(dirname(python())), join(workspace.folder, ".venv"));
    await vscode.openFile("recompile.py");
    await vscode.command("Record This File");
    const toast = page.locator(".notification-toast", { hasText: "Record written." });
    await toast.getByRole("button", { name: "Open Report" }).click({ timeout: 90_000 });
    const report = page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    await expect(report.locator("#to-do")).toBeVisible();
    await vscode.command("View: Toggle Panel Visibility");
    await compiles.show("Findings");
    await expect(compiles.row("Findings", "mode")).toBeVisible();
    await picture("report");
});
