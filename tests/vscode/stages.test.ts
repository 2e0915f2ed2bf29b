/** The stages of a compile side by side: in VS Code during a session, and on the page of `dynamo-dap explore`. */

import { execFile } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

import type { Locator, Page } from "@playwright/test";

import { LATE } from "./harness/late.js";
import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

const FILE = "explored.py";
const OTHER = "basic.py";
const COMPILES = 240_000;

function group(page: Page, name: string): Locator {
    return page.locator(".editor-group-container", { has: page.locator(".tab.active", { hasText: name }) });
}

/** Rests the pointer on a text until the editor shows its hover. */
async function rest(page: Page, text: Locator): Promise<void> {
    await page.mouse.move(5, 5);
    await text.hover({ position: { x: 8, y: 6 } });
}

/** The colours and positions of coloured lines. The cursor's line and its counterparts are stronger. */
async function colouredLines(of: Locator): Promise<{ colour: string; isStrong: boolean; y: number }[]> {
    return of.locator(".view-overlays .cdr[class*='ced-']").evaluateAll((elements) =>
        elements.map((element) => {
            const colour = getComputedStyle(element).backgroundColor;
            return { colour, isStrong: Number(/, ([\d.]+)\)$/.exec(colour)?.[1] ?? 1) > 0.2, y: element.getBoundingClientRect().y };
        }),
    );
}

async function expectMarked(of: Locator, timeout = LATE.timeout): Promise<void> {
    await expect.poll(async () => (await colouredLines(of)).some(({ isStrong }) => isStrong), { timeout }).toBe(true);
}

/** The faint colour of the line with a text. */
async function colourOf(of: Locator, text: string): Promise<string | undefined> {
    const box = await of.locator(".view-line", { hasText: text.replace(/ /g, "\u00a0") }).first().boundingBox();
    const found = (await colouredLines(of)).find(({ isStrong, y }) => !isStrong && Math.abs(y - (box?.y ?? 0)) < 3);
    expect(found, `the colour of ${text}`).toBeDefined();
    return found?.colour;
}

test("stages open side by side, and a line's counterparts light up in all of them", { tag: ["@core", "@picture"] }, async ({ vscode, workspace, picture }) => {
    test.setTimeout(6 * 60_000);
    const { debug, editor, page } = vscode;
    const [active, end] = [await workspace.line(FILE, "active"), await workspace.line(FILE, "print")];
    await workspace.write(".vscode/launch.json", launchJson({ explore: true }));
    await vscode.openFile(FILE);
    await editor.setBreakpoint(end);
    await vscode.startDebugging();
    await expect(debug.row("call-stack", "main", FILE, `${end}:`), "forward and backward are compiled").toBeVisible({ timeout: COMPILES });
    await expect(debug.rows("call-stack"), "of the program's thread alone").toHaveCount(2);
    await vscode.command("torch.compile: Explore Stages");
    const [graph, kernels] = [group(page, "dynamo of Model.forward"), group(page, "forward-kernels of")];
    await expect(graph.locator(".view-line", { hasText: "relu = torch.relu(hidden)".replace(/ /g, "\u00a0") })).toBeVisible();
    await expect(kernels.locator(".tab.active")).toContainText("[0∕0].cpp");
    const hover = page.locator(".monaco-hover:visible", { hasText: "Kernels" });
    // A stage that opens late takes the focus.
    await expect(async () => {
        await page.keyboard.press("Control+1");
        await editor.goToLine(end);
        await editor.goToLine(active);
        await expectMarked(graph, 3000);
    }, "the operations of the line").toPass();
    await expectMarked(kernels);
    // An editor that was hidden gets its marks when it is shown again.
    await page.keyboard.press("Control+2");
    await vscode.openFile(OTHER);
    await expect(graph).toHaveCount(0);
    await page.locator(".tab", { hasText: "dynamo of Model.forward" }).click();
    await expectMarked(graph);
    await page.keyboard.press("Control+1");
    await rest(page, editor.area.locator(".view-line", { hasText: "active" }).getByText("active", { exact: true }).first());
    await expect(hover, "of a line: its kernels, what else is in them").toContainText("cpp_fused_add_mul_relu");
    await expect(hover).toContainText("Fused with these lines");
    await expect(hover).toContainText("explored.py:16");
    await expect(hover).not.toContainText("explored.py:15");
    expect(await hover.innerText(), "forward first").toMatch(/\(forward\)[\s\S]*\(backward\)/);
    await expect(hover).toContainText(/not\sfused\swith\sop\S+\s\(.*\):\s/);
    const colour = await colourOf(editor.area, "active = torch.relu");
    expect(await colourOf(graph, "relu = torch.relu(hidden)"), "one colour per line").toBe(colour);
    expect(await colourOf(editor.area, "hidden = self.layers")).not.toBe(colour);
    await expect(hover).toContainText("reads 196 B");
    await expect(hover).toContainText("the peak of its pass");
    await expect(hover).toContainText("saved for the backward pass");
    await expect(hover).toContainText("make_pointwise");
    await picture("stages");
    const comment = kernels.locator(".view-line", { hasText: "//\u00a0explored.py:" }).first();
    // Two parts: the comment's mark and its text. In Python's colours there would be many.
    await expect(comment.locator("span > span"), "in the colours of C++").toHaveCount(2);
    await rest(page, comment);
    await expect(hover, "of a kernel: its lines").toContainText("Your lines");
    await expect(hover).toContainText("explored.py:14");

    await vscode.command("torch.compile: Open Stage…");
    await vscode.quickInput.choose("joint-passes: changes");
    await expect(page.locator(".tab.active", { hasText: "joint-passes: what its passes changed" })).toBeVisible();
});

test("the page of explored stages has panes whose counterparts light up", { tag: "@picture" }, async ({ page, workspace }, info) => {
    test.setTimeout(6 * 60_000);
    const env = { ...process.env, DYNAMO_DAP_RECORDS: join(workspace.folder, "records") };
    const html = join(workspace.folder, "stages.html");
    await promisify(execFile)(python(), ["-m", "dynamo_dap", "explore", "--html", html, FILE], { cwd: workspace.folder, env });
    const problems: string[] = [];
    page.on("console", (message) => problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(error.message));
    await page.setViewportSize({ width: 1500, height: 850 });
    await page.goto(pathToFileURL(html).href);
    const panes = page.locator(".pane");
    await expect(panes).toHaveCount(4);
    await panes.first().locator(".code .part", { hasText: "active = torch.relu(hidden) * scale" }).click();
    await expect(panes.nth(1).locator(".lit", { hasText: "relu = torch.relu(hidden)" })).toBeVisible();
    await expect(panes.nth(1).locator(".lit", { hasText: "torch.nn.functional.layer_norm" })).toHaveCount(0);
    await expect(panes.nth(3).locator(".lit", { hasText: "// cpp_fused_add_mul_relu" })).toBeVisible();
    await expect(page.locator("#counterparts")).toContainText("backward-kernels");
    await page.screenshot({ path: info.outputPath("stages-page.png") });
    await panes.nth(3).locator(".code .part", { hasText: "// cpp_fused_native_layer_norm_0" }).click();
    await expect(panes.first().locator(".lit")).toHaveCount(1);
    await expect(panes.first().locator(".lit")).toContainText("hidden = self.layers[0]");
    await page.getByRole("button", { name: /^forward peak: \d+ B at explored.py:\d+/ }).click();
    await expect(panes.nth(3).locator("select")).toHaveValue("forward-kernels");
    await expect(page.locator("#counterparts")).toContainText("in use, the peak");
    await panes.nth(1).locator("select").selectOption("changes:joint-passes");
    await expect(panes.nth(1).locator(".removed", { hasText: "aten.alias.default(relu)" })).toBeVisible();
    expect(problems).toEqual([]);
});
