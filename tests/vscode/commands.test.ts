/** The palette's commands that need no session, and the links over models and tests. */

import type { Locator } from "@playwright/test";
import { readdir } from "node:fs/promises";
import { join } from "node:path";

import { LATE } from "./harness/late.js";
import { expect, test } from "./harness/test.js";

test("a run of the file is recorded, and its report is a page in an editor", async ({ vscode, picture }) => {
    const { page } = vscode;
    await vscode.openFile("graph_break.py");
    await vscode.command("torch.compile: Record This File");
    const told = page.locator(".notification-toast", { hasText: "Record written." });
    await expect(told).toBeVisible(LATE);
    await expect(page.locator(".codelens-decoration a", { hasText: /^2 graphs, 1 break/ }).first()).toBeVisible(LATE);
    await told.getByRole("button", { name: "Open Report" }).click();
    const report = page.frameLocator("iframe.webview.ready").frameLocator("#active-frame");
    await expect(report.locator(".item h3").first()).toContainText("Graph break at graph_break.py", LATE);
    await expect(report.locator("#timeline")).toBeVisible();
    await expect(report.locator("body"), "the editors of the dark theme").toHaveCSS("background-color", "rgb(31, 31, 31)");
    const compile = report.locator("details", { hasText: "train_step [0/0]" }).first();
    await report.locator(".item").first().getByRole("link", { name: "[0/0]" }).click();
    await expect(compile, "links lead through the page").toHaveAttribute("open", "");
    await picture("report");
});

test("a run of the file is profiled: a flame chart that leads to lines, and VS Code's own table", async ({ vscode, workspace, picture }) => {
    const { editor, page } = vscode;
    await vscode.openFile("graph_break.py");
    await vscode.command("torch.compile: Profile This File");
    const told = page.locator(".notification-toast", { hasText: "Profile written." });
    await expect(told).toBeVisible(LATE);
    await expect(page.locator(".codelens-decoration a", { hasText: /^traced 3 times/ })).toBeVisible(LATE);
    expect((await readdir(workspace.folder)).filter((name) => name.includes("profile")), "nothing among the user's files").toEqual([]);
    await told.getByRole("button", { name: "Open the Flame Chart" }).click();
    const chart = page.frameLocator("iframe.webview.ready").frameLocator("#active-frame");
    const box = (title: RegExp): Locator => chart.locator("#chart button").and(chart.getByTitle(title)).first();
    await expect(chart.locator("#legend li", { hasText: "tracing" })).toBeVisible(LATE);
    const compile = box(/^compile train_step \[0\/0\]/);
    const width = async (): Promise<number> => (await compile.boundingBox())?.width ?? 0;
    const before = await width();
    await compile.click({ force: true });
    await expect(chart.locator("#details")).toContainText("compile train_step [0/0]");
    await chart.getByRole("button", { name: "Zoom in" }).click();
    await expect.poll(width, "it fills the chart").toBeGreaterThan(before + 100);
    await box(/^train_step: /).click();
    await expect(chart.locator("#details")).toContainText("3 × in all");
    const program = chart.locator("h1 code");
    await expect(program, "without its folder").toHaveText("graph_break.py");
    await expect(program).toHaveAttribute("title", join(workspace.folder, "graph_break.py"));
    await expect(chart.locator("#details a")).toHaveText(/^graph_break.py:\d+$/);
    await expect(chart.locator("body"), "the editors of the dark theme").toHaveCSS("background-color", "rgb(31, 31, 31)");
    await picture("flame-chart");
    await chart.locator("#details a").click();
    await expect(page.locator(".tab.active", { hasText: "graph_break.py" })).toBeVisible();
    await expect(editor.area.locator(".view-line", { hasText: "train_step" }).first()).toBeVisible();
    // VS Code opens a profile in its own editor, not as text.
    await vscode.openFile("graph_break.py");
    await vscode.command("torch.compile: Profile This File");
    await told.getByRole("button", { name: "Open the Table" }).click(LATE);
    await expect(page.locator(".tab.active", { hasText: "graph_break.cpuprofile" })).toBeVisible(LATE);
    const table = page.frameLocator("iframe.webview.ready >> visible=true").frameLocator("#active-frame");
    await expect(table.getByText("train_step", { exact: true }).first()).toBeVisible(LATE);
    await picture("profile-table");
});

test("the palette opens the newest report, or says that there is none", async ({ vscode }) => {
    const { page } = vscode;
    await vscode.openFile("plain.py");
    const none = page.locator(".notification-toast", { hasText: /Nothing has been recorded yet|is not running/ });
    await vscode.command("torch.compile: Open Report");
    await expect(none).toBeVisible(LATE);
});

test("the fixes of the line with the cursor are tried", async ({ vscode, workspace, picture }) => {
    const { editor, page } = vscode;
    const lines = ["import torch", "", "", "@torch.compile(backend='eager')", "def double(x):", "    y = x * 2"];
    lines.push("    print('doubled')", "    return y + 1", "", "", "print(double(torch.ones(2)).sum().item())", "");
    await workspace.write("doubling.py", lines.join("\n"));
    await vscode.openFile("doubling.py");
    await vscode.command("torch.compile: Record This File");
    await expect(page.locator(".codelens-decoration a", { hasText: /^2 graphs, 1 break/ }).first()).toBeVisible(LATE);
    await editor.goToLine(7);
    await vscode.command("torch.compile: Try Fixes for This Line");
    const told = page.locator(".notification-toast", { hasText: /It helps, .*result is the same/ });
    await expect(told, "each fix that is known for the line").toHaveCount(2, LATE);
    await picture("tried-fix");
});

test("the link over a test of pytest debugs that test alone", async ({ vscode, workspace, picture }) => {
    const { debug, editor } = vscode;
    const lines = ["import torch", "", "", "@torch.compile(backend='eager')", "def double(x):", "    return x * 2", "", ""];
    lines.push("def test_other():", "    raise AssertionError('not asked for')", "", "", "class TestDouble:", "    def test_doubles(self):");
    lines.push("        assert double(torch.ones(2)).sum() == 4", "");
    await workspace.write("test_double.py", lines.join("\n"));
    // Without this file, pytest would use the configuration of the repository around the workspace.
    await workspace.write("pytest.ini", "[pytest]\n");
    await vscode.openFile("test_double.py");
    await editor.setBreakpoint(6);
    const links = editor.area.locator(".codelens-decoration a", { hasText: "Debug test" });
    await expect(links).toHaveCount(2);
    await debug.noteStart();
    await links.last().click();
    await debug.waitForStop(/^double test_double.py 6:/);
    await expect.poll(() => debug.texts("call-stack")).toContainEqual(expect.stringMatching(/^test_doubles|TestDouble.test_doubles/));
    await picture("debug-test");
    await debug.press("F5");
    await debug.waitForEnd();
    await expect(debug.consoleRows().filter({ hasText: "1 passed" }).first()).toBeVisible();
});

test("a model that is compiled by a call has the link over its forward", async ({ vscode, workspace, picture }) => {
    const lines = ["import torch", "", "", "class Tiny(torch.nn.Module):", "    def forward(self, x):", "        return x * 2", "", ""];
    lines.push("model = Tiny()", "compiled = torch.compile(model, backend='eager')", "print(compiled(torch.ones(2)).sum())", "");
    await workspace.write("tiny.py", lines.join("\n"));
    await vscode.openFile("tiny.py");
    await vscode.editor.area.locator(".codelens-decoration a", { hasText: "Debug tracing" }).click();
    await vscode.debug.waitForStop(/^Tiny.forward tiny.py 6:/);
    await picture("lens-of-model");
});
