/** The view "Cache": lists torch's cache entries of each function, and removes them. */

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

const FILE = "cache_entries.py";

test("cache entries are shown with guards and code, and forgotten", { tag: "@picture" }, async ({ vscode, workspace, picture }) => {
    const { compiles, debug, editor, page } = vscode;
    const [again, end] = [await workspace.line(FILE, "again"), await workspace.line(FILE, "end")];
    await vscode.openFile(FILE);
    await editor.setBreakpoint(again);
    await editor.setBreakpoint(end);
    await vscode.startDebugging();
    await debug.waitForStop(at("main", FILE, again));
    await compiles.show("Cache");
    await expect(compiles.title("Cache")).toContainText("4 entries");
    await expect(compiles.row("Cache", "0/0")).toContainText("eager");
    await compiles.open("Cache", "0/0");
    await expect(await compiles.reveal("Cache", "Last miss")).toContainText("factor == 2 2 → 3");
    await compiles.open("Cache", "8 guards");
    await expect(await compiles.reveal("Cache", "missed 1 time"), "the guard that failed, and its line").toContainText("factor == 2");
    await expect(await compiles.reveal("Cache", "missed 1 time")).toContainText(`${FILE}:8`);
    await expect(await compiles.reveal("Cache", "Resumes at line 9")).toContainText('print("between")');
    await (await compiles.reveal("Cache", "Generated code")).click();
    await expect.poll(() => editor.text()).toContain("def fn(x, factor):");
    await expect(page.locator(".tab.active", { hasText: "fn [0∕0], generated code" })).toBeVisible();
    await compiles.reveal("Cache", "Last miss");
    await picture("cache-entries");

    const entry = await compiles.reveal("Cache", "0/0");
    await entry.hover();
    await entry.getByRole("button", { name: "Remove This Cache Entry" }).click();
    await expect(compiles.title("Cache")).toContainText("3 entries");
    await expect(compiles.row("Cache", "0/0")).toHaveCount(0);

    await debug.press("F5");
    await debug.waitForStop(at("main", FILE, end));
    await compiles.show("Cache");
    await expect(compiles.row("Cache", "0/2"), "it was compiled again").toContainText("1 call since counting began");
    const function_ = await compiles.reveal("Cache", "2 entries");
    await function_.hover();
    await function_.getByRole("button", { name: "Remove All Cache Entries of This Function" }).click();
    await expect(compiles.title("Cache")).toContainText("1 entry");
    await expect(compiles.row("Cache", "Model.forward")).toBeVisible();
});
