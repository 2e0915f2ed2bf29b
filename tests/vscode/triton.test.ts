/** A stop in a Triton kernel: the scope of its program, and a block as a heat map in "View Tensor". */

import { at } from "./harness/debug-panes.js";
import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";
import { launchJson } from "./harness/workspace.js";

const FILE = "triton_programs/tutorials.py";

// Not the forking Python: its programs have already imported Triton, and would compile the kernels.
test.use({ settings: { "dynamo.python": python() } });

test("a kernel's program has its own scope, and a heat map shows its block", async ({
    vscode,
    workspace,
    picture,
}) => {
    const { debug, editor, page } = vscode;
    const [matmul, half] = [await workspace.line(FILE, "matmul"), await workspace.line(FILE, "half")];
    const launch = launchJson({ triton: "interpret", internalConsoleOptions: "neverOpen" });
    await workspace.write(".vscode/launch.json", launch);
    await vscode.openFile(FILE);
    await editor.setBreakpoint(matmul);
    await editor.setBreakpoint(half);
    await vscode.startDebugging();
    await debug.waitForStop(at("matmul_kernel", "tutorials.py", matmul));
    // The default setting does not name this filter; the program imports Triton.
    await expect(await debug.reveal("breakpoints", "Out of Bounds in Triton")).toBeVisible();
    await debug.foldVariables("Locals", false);
    await debug.expand("Program");
    const facts = { kernel: "matmul_kernel", launch: "1, at tutorials.py:", grid: "(2, 2, 1)", "program_id(1)": "0", BK: "4" };
    for (const [name, value] of Object.entries(facts)) {
        await debug.reveal("variables", `${name} =`, value);
    }
    expect(await debug.offers("c_ptr =")).toContain("View Tensor");
    await picture("triton-program");

    // The block that is about to be stored; then, in the same page, a block of another kernel.
    await vscode.command("View Tensor Expression");
    await vscode.quickInput.answer("total");
    await expect(page.locator(".tab.active", { hasText: "total" })).toBeVisible();
    const tensor = page.locator("iframe.webview.ready:visible").last().contentFrame().frameLocator("#active-frame");
    await expect(tensor.locator("#kind")).toHaveValue("map");
    const map = tensor.locator("#picture canvas");
    await expect(map).toHaveAttribute("aria-label", "Heat map, 4 × 4 points");
    const colours = await map.evaluate((element: HTMLCanvasElement) => {
        const { data } = element.getContext("2d")?.getImageData(0, 0, element.width, element.height) ?? { data: [] };
        return new Set(Array.from({ length: data.length / 4 }, (_, point) => data.slice(4 * point, 4 * point + 3).join())).size;
    });
    expect(colours).toBeGreaterThan(10);
    await picture("triton-heat-map");
    await debug.press("F5");
    await debug.waitForStop(at("half_kernel", "tutorials.py", half));
    await debug.press("F5");
    await debug.waitForEnd();
});
