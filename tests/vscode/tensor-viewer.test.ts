/** "View Tensor": the page of a tensor in ordinary Python, in a trace and in generated code. */

import type { Locator } from "@playwright/test";

import { at } from "./harness/debug-panes.js";
import { tensorPage, view } from "./harness/tensor-page.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

const FILE = "attention.py";

/** How many colours a canvas has, without transparent points. */
async function colours(canvas: Locator): Promise<number> {
    return canvas.evaluate((element: HTMLCanvasElement) => {
        const { data } = element.getContext("2d")?.getImageData(0, 0, element.width, element.height) ?? { data: new Uint8ClampedArray() };
        const found = new Set<string>();
        for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3] !== 0) {
                found.add([data[at], data[at + 1], data[at + 2]].join());
            }
        }
        return found.size;
    });
}

test("a tensor of a trace is shown: table, histogram, heat maps, NaN, and again in the next call", { tag: ["@core", "@picture"] }, async ({
    vscode,
    workspace,
    picture,
}) => {
    const { debug, editor } = vscode;
    const line = await workspace.line(FILE, "traced");
    await workspace.write(".vscode/launch.json", launchJson({ internalConsoleOptions: "neverOpen" }));
    await vscode.openFile(FILE);
    await editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("attend", FILE, line));
    expect(await debug.offers("weights =")).toContain("View Tensor");

    const tensor = await view(vscode, "weights");
    await expect(tensor.locator("#text")).toHaveText("Tensor f32[6, 24, 24] cpu");
    await expect(tensor.locator("td").first()).toHaveText("1.0");
    await expect(tensor.locator("dd.nan")).toHaveText("144");
    await expect(tensor.locator("#histogram canvas")).toBeVisible();
    const bar = tensor.locator("#histogram .u-legend");
    await expect(bar, "no bar is under the mouse").toBeHidden();
    await tensor.locator("#histogram .u-over").hover();
    await expect(bar).toBeVisible();
    await expect(bar).toContainText(/\d … \d/);
    await vscode.page.mouse.move(5, 5);
    await expect(tensor.locator("#kind")).toHaveValue("tiles");
    const maps = tensor.locator("#picture canvas");
    await expect(maps).toHaveCount(6);
    expect(await colours(maps.first())).toBeGreaterThan(20);
    await expect(tensor.locator("#legend")).toContainText("NaN");
    await vscode.command("View: Toggle Maximize Editor Group");
    await expect(tensor.locator("#side")).toBeInViewport();
    await picture("tensor");

    // The count of NaN links to the first NaN.
    await tensor.getByRole("button", { name: "144" }).click();
    await expect(tensor.locator("#cell")).toHaveText("weights[0, 20, 0] = nan");

    // The minimum and the maximum are links to their elements.
    for (const name of ["min", "max"]) {
        const link = tensor.locator("#statistics div", { has: tensor.locator("dt", { hasText: name }) }).getByRole("button");
        const value = await link.innerText();
        await link.click();
        const cell = await tensor.locator("#cell").innerText();
        expect(cell, name).toMatch(/^weights\[\d+, \d+, \d+\] = /);
        expect(Number(cell.split(" = ")[1])).toBeCloseTo(Number(value), 3);
    }

    // The search also finds the first NaN, then the next.
    await tensor.locator("#find").fill("nan");
    await tensor.locator("#find").press("Enter");
    await expect(tensor.locator("#found")).toHaveText("1 of 144");
    await tensor.locator("#find").press("Enter");
    await expect(tensor.locator("#found")).toHaveText("2 of 144");
    await expect(tensor.locator("#cell")).toHaveText("weights[0, 20, 1] = nan");
    await picture("tensor-search");

    // Fewer digits make room for more columns.
    const columns = tensor.locator("#cells thead th");
    const before = await columns.count();
    await tensor.locator("#digits").selectOption("2");
    await expect(tensor.locator("td", { hasText: /^0\.0*[1-9]\d{2,}/ })).toHaveCount(0);
    await expect.poll(() => columns.count()).toBeGreaterThan(before);
    await tensor.locator("#digits").selectOption("all");

    // A click on a column sorts, the largest first; a filter leaves rows out.
    const numbers = tensor.locator("#cells tbody th");
    await tensor.locator("#cells thead th", { hasText: /^0$/ }).click();
    await expect(tensor.locator("#cells thead th").nth(1)).toHaveAttribute("aria-sort", "descending");
    await expect(tensor.locator("td").first(), "NaN is above the numbers").toHaveText("nan");
    await expect(numbers.first()).toHaveText("20");
    await expect(tensor.locator("#cell")).toHaveText("weights[0, 20, 0] = nan");
    await picture("tensor-sorted");
    await tensor.locator("#cells thead th").nth(1).click();
    await expect(tensor.locator("#cells thead th").nth(1)).toHaveAttribute("aria-sort", "ascending");
    await expect(tensor.locator("td").first(), "the smallest").toHaveText(/^\d/);
    const smallest = Number(await tensor.locator("td").first().innerText());
    expect(smallest).toBeLessThan(Number(await tensor.locator("#cells tbody tr").nth(3).locator("td").first().innerText()));
    await tensor.locator("#rows-with").fill("nan");
    await tensor.locator("#rows-with").press("Enter");
    await expect(tensor.locator("#rows-left")).toHaveText("1 rows");
    await expect(numbers).toHaveText(["20"]);
    await picture("tensor-filtered");

    // A click on a heat map goes to its element, and shows all rows again.
    const box = await maps.nth(3).boundingBox();
    await maps.nth(3).click({ position: { x: 3, y: ((box?.height ?? 0) * 20.5) / 24 } });
    await expect(tensor.locator("#cell")).toHaveText("weights[3, 20, 0] = nan");
    await expect(tensor.locator("td.nan.active")).toBeVisible();
    await expect(tensor.locator("#rows-with")).toHaveValue("");
    await expect(numbers.first()).not.toHaveText("20");
    // Keys move through the rows, and change the index of the first dimension.
    await tensor.locator("#scroller").press("Control+Home");
    await tensor.locator("#scroller").press("ArrowDown");
    await expect(tensor.locator("#cell")).toContainText("weights[3, 1, 0] = 0.");
    await tensor.getByLabel("Dimension 0, of 6").press("ArrowDown");
    await expect(tensor.locator("#cell")).toContainText("weights[2, 1, 0] = 0.");
    const inFirstCall = await tensor.locator("#cell").innerText();

    // The difference from another tensor.
    await tensor.locator("#minus").fill("scores.softmax(-1)");
    await tensor.locator("#minus").press("Enter");
    await expect(tensor.locator("#text")).toHaveText("Tensor f32[6, 24, 24] cpu - Tensor f32[6, 24, 24] cpu");
    await expect(tensor.locator("#table-title")).toContainText("weights - (scores.softmax(-1))");
    await tensor.locator("#minus").fill("nothing");
    await tensor.locator("#minus").press("Enter");
    await expect(tensor.locator("#problem")).toContainText("nothing");
    await tensor.locator("#minus").fill("");
    await tensor.locator("#minus").press("Enter");
    await expect(tensor.locator("#problem")).toBeHidden();

    // The next call, a cache hit, has its own values.
    const inStatistics = await tensor.locator("#statistics").innerText();
    await debug.press("F5");
    await expect(debug.headline()).toHaveText("Call 2 of attend [0/0]");
    await expect(tensor.locator("#statistics")).not.toHaveText(inStatistics);
    await expect(tensor.locator("#cell")).toContainText("weights[2, 1, 0] = ");
    await expect(tensor.locator("#cell")).not.toHaveText(inFirstCall);
    await debug.press("F5");
    await debug.waitForEnd();
    await expect(tensor.locator("#stop")).toContainText("The program has ended");
});

test("tensors of ordinary Python: an image, and one of a billion elements", async ({ vscode, workspace, picture }) => {
    const { debug, editor } = vscode;
    const line = await workspace.line(FILE, "eager");
    await vscode.openFile(FILE);
    await editor.setBreakpoint(line);
    await vscode.startDebugging();
    await debug.waitForStop(at("main", FILE, line));
    const image = await view(vscode, "image");
    await expect(image.locator("#kind")).toHaveValue("chw");
    await expect(image.locator("#picture canvas")).toHaveAttribute("width", "96");
    expect(await colours(image.locator("#picture canvas"))).toBeGreaterThan(1000);
    await expect(image.locator("#histogram canvas")).toBeVisible();
    await expect(image.locator("td").first()).toHaveText("0.0");
    await picture("tensor-image");
    await image.locator("#kind").selectOption("Heat map");
    await expect(image.locator("#picture canvas")).toHaveAttribute("aria-label", "Heat map, 64 × 96 points");
    expect(await colours(image.locator("#picture canvas"))).toBeGreaterThan(50);

    const huge = await view(vscode, "huge");
    await expect(huge.locator("#text")).toHaveText("Tensor f32[1000000000] cpu");
    await expect(huge.locator("#statistics")).toContainText("262,144 of 1,000,000,000 elements, sampled at random");
    await huge.locator("#scroller").press("Control+End");
    await expect(huge.locator("#cell")).toHaveText("huge[999999999] = 0.0");
    await expect(huge.locator("#cells tbody th").last()).toHaveText("999999999");
    await expect(huge.locator("td.active")).toBeInViewport();
    await picture("tensor-huge");
});

test("a tensor of generated code, by an expression", async ({ vscode, workspace, picture }) => {
    const { debug } = vscode;
    await workspace.write(".vscode/settings.json", JSON.stringify({ "workbench.colorTheme": "Default Dark Modern" }));
    await workspace.write(".vscode/launch.json", launchJson({ mode: "run-time", stopOnGeneratedCode: true, internalConsoleOptions: "neverOpen" }));
    await vscode.openFile(FILE);
    await vscode.startDebugging();
    await debug.waitForStop(/^attend \(generated #\d+\) /);
    const mask = await view(vscode, "mask");
    await expect(mask.locator("#text")).toHaveText("Tensor f32[24, 24] cpu");
    await expect(mask.locator("td.negative-inf").first()).toHaveText("-inf");
    await expect(mask.locator("#histogram canvas")).toBeVisible();
    expect(await colours(mask.locator("#picture canvas"))).toBe(2);
    await picture("tensor-generated");

    await vscode.command("View Tensor Expression");
    await vscode.quickInput.answer("x[0] - 1");
    await expect(vscode.page.locator(".tab.active", { hasText: "x[0] - 1" })).toBeVisible();
    const computed = tensorPage(vscode);
    await expect(computed.locator("#text")).toHaveText("Tensor f32[24, 16] cpu");
    await expect(computed.locator("#legend")).toContainText("-");
});
