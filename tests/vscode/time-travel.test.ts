/** Goes back in a held trace: by VS Code's own buttons, by the view Timeline, and by "Go Back to …" in menus. */

import type { Locator } from "@playwright/test";

import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";
import type { Workbench } from "./harness/workbench.js";

const FILE = "basic.py";

/** Chooses an entry of the menu of a row. */
async function choose({ page }: Workbench, row: () => Promise<Locator>, name: string): Promise<void> {
    const entry = page.locator(".monaco-menu .action-item:not(.disabled) .action-label", { hasText: name });
    await expect(async () => {
        await (await row()).click({ button: "right" });
        await expect(entry).toBeVisible({ timeout: 2000 });
    }, `the menu offers "${name}"`).toPass();
    // A menu ignores clicks just after it has opened.
    await expect(async () => {
        await entry.click({ timeout: 2000 });
        await expect(entry).toBeHidden({ timeout: 2000 });
    }, `"${name}" is chosen`).toPass();
}

async function press({ debug, page }: Workbench, button: string): Promise<void> {
    await debug.show();
    await page.locator(".debug-toolbar, .part.sidebar").getByRole("button", { name: button }).first().click();
}

/** Clicks a row of the timeline. Repeats it, because a click while VS Code rebuilds the view is lost. */
async function goBackTo({ compiles, debug }: Workbench, row: string, headline: RegExp): Promise<void> {
    await expect(async () => {
        await compiles.show("Timeline");
        await (await compiles.reveal("Timeline", row)).click();
        await debug.show();
        await expect(debug.headline()).toHaveText(headline, { timeout: 5000 });
    }, `a click on ${row} goes there`).toPass();
}

test("buttons, the timeline and menus of variables go back in a trace", { tag: "@picture" }, async ({ vscode, workspace, picture }) => {
    const { compiles, debug, editor, page } = vscode;
    const place = async (marker: string): Promise<number> => workspace.line(FILE, marker);
    const [first, call, helper, total] = [await place("first"), await place("call"), await place("in_helper"), await place("total")];
    await vscode.openFile(FILE);
    await editor.setBreakpoint(first);
    await editor.setBreakpoint(total);
    await vscode.startDebugging();
    await debug.waitForStop(at("compute", FILE, first));
    await debug.press("F5");
    await debug.waitForStop(at("compute", FILE, total));
    await compiles.show("Timeline");
    await expect(compiles.title("Timeline")).toContainText("7 of 7");
    await expect(compiles.row("Timeline", "total = z.sum()")).toContainText("compute");

    await press(vscode, "Step Back");
    await debug.waitForStop(at("compute", FILE, await place("after_call")));
    await press(vscode, "Reverse");
    await debug.waitForStop(at("compute", FILE, first));
    await expect(debug.row("variables", "x =")).toBeVisible();
    await expect(debug.row("variables", "z ="), "what was not computed yet is not shown").toHaveCount(0);
    await compiles.show("Timeline");
    await expect(compiles.title("Timeline")).toContainText("1 of 7");
    await compiles.open("Timeline", "z = scale(z, 2)");
    await goBackTo(vscode, "return doubled + 1", /2 statements back/);
    await debug.waitForStop(at("scale", FILE, await place("helper_return")));
    await compiles.show("Timeline");
    await expect(compiles.title("Timeline")).toContainText("5 of 7");
    await picture("time-travel");
    await debug.show();
    await expect(debug.headline()).toHaveText("Tracing compute [0/0], 2 statements back");
    await expect(debug.row("variables", "doubled =")).toContainText("Tensor f32[3, 4]");

    await choose(vscode, () => debug.reveal("variables", "doubled ="), "Go Back to Assignment");
    await debug.waitForStop(at("scale", FILE, helper));
    // The rows move while VS Code replaces those of the previous stop.
    await expect(debug.row("variables", "doubled ="), "it is not bound yet").toHaveCount(0);
    expect(await debug.offers("factor ="), "what is not a tensor becomes no NaN").not.toContain("Go Back to First NaN");
    await choose(vscode, () => debug.reveal("variables", "factor ="), "Go Back to In-Place Change");
    await expect(page.locator(".notification-toast"), "an answer, too").toContainText("'factor'");
    await compiles.show("Graph");
    await choose(vscode, () => compiles.reveal("Graph", "x + y"), "Go Back to Creation");
    await debug.waitForStop(at("compute", FILE, first));

    // The second call is a cache hit, and has a history, too.
    await debug.press("F5");
    await debug.waitForStop(at("compute", FILE, total));
    await debug.press("F5");
    await expect(debug.headline()).toHaveText("Call 2 of compute [0/0]");
    await debug.waitForStop(at("compute", FILE, first));
    await debug.press("F5");
    await debug.waitForStop(at("compute", FILE, total));
    await compiles.show("Timeline");
    // Wait until the view has rebuilt its rows after the stop: an earlier click would be lost.
    await expect(compiles.row("Timeline", "total = z.sum()").locator(".codicon-debug-stackframe")).toBeVisible();
    await goBackTo(vscode, "shape = z.shape", /1 statement back/);
    await debug.waitForStop(at("compute", FILE, await place("after_call")));
    await press(vscode, "Step Back");
    await debug.waitForStop(at("compute", FILE, call));
    await expect(debug.headline()).toHaveText("Call 2 of compute [0/0], 4 statements back");
    await debug.press("F5");
    await debug.waitForStop(at("compute", FILE, total));
    await debug.press("F5");
    await debug.waitForEnd();
});

test("steps back are offered from the first stop in a trace on, and not before", { tag: "@core" }, async ({ vscode, workspace }) => {
    const { debug, editor, page } = vscode;
    const place = async (marker: string): Promise<number> => workspace.line(FILE, marker);
    const [ordinary, first, after] = [await place("eager_call"), await place("first"), await place("second_call")];
    const button = (name: string): Locator =>
        page.locator(".debug-toolbar, .part.sidebar").getByRole("button", { name }).first();
    await vscode.openFile(FILE);
    for (const line of [ordinary, first, after]) {
        await editor.setBreakpoint(line);
    }
    await vscode.startDebugging();
    await debug.waitForStop(at("main", FILE, ordinary));
    await expect(button("Step Over")).toBeVisible();
    await expect(button("Step Back"), "ordinary Python has no history").toBeHidden();
    await expect(button("Reverse")).toBeHidden();
    await debug.press("F5");
    await debug.waitForStop(at("compute", FILE, first));
    await expect(button("Step Back")).toBeVisible();
    await expect(button("Reverse")).toBeVisible();
    const where = await button("Step Over").boundingBox();
    await debug.press("F5");
    await debug.waitForStop(at("main", FILE, after));
    await expect(button("Step Back")).toBeVisible();
    expect(await button("Step Over").boundingBox(), "no button moves under the mouse").toEqual(where);
    await debug.press("Shift+F5");
    await debug.waitForEnd();
});

test("graph breaks, abandoned attempts and breakpoints are marked in the timeline", async ({ vscode, workspace, picture }) => {
    const BREAKING = "graph_break.py";
    const { compiles, debug, editor } = vscode;
    const [before, last] = [await workspace.line(BREAKING, "before_break"), await workspace.line(BREAKING, "return")];
    await vscode.openFile(BREAKING);
    await editor.setBreakpoint(last);
    await vscode.startDebugging();
    await debug.waitForStop(at("train_step (resumed at line 16)", BREAKING, last));
    await compiles.show("Timeline");
    await editor.setBreakpoint(before);
    const marked = compiles.row("Timeline", "scaled = total * 2");
    await compiles.reveal("Timeline", "shifted = scaled + 1");
    await expect(compiles.row("Timeline", "shifted = scaled + 1")).toContainText("[after a graph break");
    await expect(compiles.row("Timeline", "return shifted").locator(".codicon-debug-stackframe")).toBeVisible();
    await compiles.reveal("Timeline", "scaled = total * 2");
    await expect(marked.locator(".codicon-debug-breakpoint"), "as soon as it is set").toBeVisible();
    await picture("timeline-marks");
    await goBackTo(vscode, "total = x * 0", /back/);
    await debug.waitForStop(at("train_step", BREAKING, await workspace.line(BREAKING, "before_loop")));
    await expect(debug.row("variables", "scaled ="), "this attempt had not come so far").toHaveCount(0);
    await compiles.show("Timeline");
    await expect(compiles.row("Timeline", "total = x * 0")).toContainText("[attempt 1, abandoned");
    await debug.press("Shift+F5");
    await debug.waitForEnd();
});
