/** The page of `dynamo-dap report --html` in a browser: it is drawn, clicks work, and it runs no foreign code. */

import { expect, test as base, type Locator, type Page } from "@playwright/test";
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

import { chromium, CHROMIUM_ARGUMENTS } from "./harness/chromium.js";
import { python } from "./harness/python.js";

const run = promisify(execFile);

const PROGRAM = `import torch


@torch.compile(backend="eager")
def step(x, scale):
    y = x * scale
    print("<img src=x onerror=alert(1)>")
    return y.relu() + 1


@torch.compile(backend="eager")
def loss(x):
    return (x * 2).sum()


for size in (3, 5):
    loss(step(torch.ones(size, 2), 2.0))
`;

const test = base.extend<{ report: Page }>({
    launchOptions: [
        async ({ launchOptions }, use): Promise<void> => {
            await use({ ...launchOptions, executablePath: await chromium(), args: CHROMIUM_ARGUMENTS });
        },
        { scope: "worker" },
    ],
    report: async ({ page }, use) => {
        const folder = await mkdtemp(join(tmpdir(), "dynamo-dap-report-"));
        const env = { ...process.env, DYNAMO_DAP_RECORDS: join(folder, "records") };
        const command = async (...words: string[]): Promise<string> =>
            (await run(python(), ["-m", "dynamo_dap", ...words], { cwd: folder, env })).stdout;
        await writeFile(join(folder, "program.py"), PROGRAM);
        await command("run", "program.py");
        const path = (await command("report", "--html", "--no-browser")).trim();
        const problems: string[] = [];
        page.on("console", (message) => problems.push(message.text()));
        page.on("pageerror", (error) => problems.push(error.message));
        page.on("request", (request) => {
            if (!request.url().startsWith("file:")) {
                problems.push(request.url());
            }
        });
        await page.goto(pathToFileURL(path).href);
        await use(page);
        expect(problems).toEqual([]);
        await rm(folder, { recursive: true });
    },
});

/** The bars of the timeline. */
const bars = (page: Page): Locator => page.locator("#timeline button");

test("the page begins with what to do, which links to the compile", async ({ report }) => {
    const items = report.locator(".item h3");
    await expect(items.first()).toContainText("Graph break at program.py:7: Failed to trace");
    await expect(items.nth(1)).toContainText("changed from call to call: 3, 5");
    await expect(report.locator(".item").nth(1)).toContainText("maybe_mark_dynamic(x, 0)");
    const compile = report.locator("details", { hasText: "step [0/1]" }).first();
    await expect(compile).not.toHaveAttribute("open", "");
    await report.locator(".item").nth(1).getByRole("link", { name: "[0/1]" }).click();
    await expect(compile).toHaveAttribute("open", "");
    await expect(compile).toBeInViewport();
});

test("the timeline shows each compile, zooms by dragging, and links to a clicked compile", async ({ report }) => {
    const chart = report.locator("#timeline .lanes");
    await chart.scrollIntoViewIfNeeded();
    await expect(report.locator("#timeline .names div")).toHaveCount(2);
    const before = await bars(report).count();
    expect(before).toBeGreaterThan(5);
    const bar = bars(report).and(report.getByTitle(/^step \[0\/0\]\ndynamo/i)).first();
    const width = async (): Promise<number> => (await bar.boundingBox())?.width ?? 0;
    const whole = await width();
    await bar.click();
    await expect(report.locator("details[open]", { hasText: "step [0/0]" }).first()).toBeInViewport();

    await chart.scrollIntoViewIfNeeded();
    const box = await chart.boundingBox();
    expect(box).not.toBeNull();
    const at = (part: number): [number, number] => [(box?.x ?? 0) + (box?.width ?? 0) * part, (box?.y ?? 0) + (box?.height ?? 0) / 2];
    await report.mouse.move(...at(0.01));
    await report.mouse.down();
    await report.mouse.move(...at(0.4), { steps: 4 });
    await report.mouse.up();
    const all = report.getByRole("button", { name: "Show all of it" });
    await expect(all).toBeVisible();
    await expect.poll(width, "the bar is wider").toBeGreaterThan(whole * 1.5);
    await all.click();
    await expect(all).toBeHidden();
    await expect(bars(report)).toHaveCount(before);
    expect(await width()).toBeCloseTo(whole, 0);
});

for (const [scheme, text] of [["light", "rgb(31, 35, 40)"], ["dark", "rgb(230, 237, 243)"]] as const) {
    test(`the timeline has the colours of the ${scheme} theme`, async ({ report }) => {
        await report.emulateMedia({ colorScheme: scheme });
        await expect(report.locator("#timeline .names div").first()).toHaveCSS("color", text);
    });
}

test("the calls that led to compiles are a tree from the program's first line", async ({ report }) => {
    const tree = report.locator(".tree");
    await expect(tree.locator("> ul > li").first()).toContainText("loss(step(torch.ones(size, 2), 2.0))");
    await expect(tree.getByRole("link")).toContainText(["step [0/0]", "step [0/1]", "loss [2/0]"], { useInnerText: true });
});
