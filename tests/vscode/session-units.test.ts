/** Texts and marks of a session in the editor: pure functions, without a browser. */

import { expect, test } from "@playwright/test";
import { writeFile } from "node:fs/promises";

import { answer, askUntilFound } from "../../vscode-extension/src/editor/ask-until-found.js";
import { briefValue, isWorthShowing } from "../../vscode-extension/src/editor/brief-value.js";
import { fixLinks } from "../../vscode-extension/src/editor/fix-links.js";
import { afterAssignment } from "../../vscode-extension/src/editor/mentioned-names.js";
import { FailedLogs } from "../../vscode-extension/src/session/failed-logs.js";
import { offeredFilters } from "../../vscode-extension/src/session/offered-filters.js";
import { placesIn, withRelativePaths } from "../../vscode-extension/src/session/links-in-texts.js";

test("a logpoint without a value yet belongs to the statement after the assignment", () => {
    const lines = ["def f(x):", "    y = g(", "        x,", "    )", "    # then", "    if y:", "        z = y", "    return z"];
    expect(afterAssignment(lines, 1, "y.sum()")).toEqual({ line: 5, name: "y" });
    expect(afterAssignment(lines, 1, "x"), "the line assigns another name").toBeUndefined();
    expect(afterAssignment(lines, 6, "z"), "the next line runs in other cases, too").toBeUndefined();
    expect(afterAssignment(lines, 5, "y")).toBeUndefined();
});

test("paths below the workspace are relative, so that VS Code links them in a remote window, too", () => {
    const text = "at /w/a b/m.py:9\nat /w/a bc/m.py:9\nat /w/a b/m.py";
    expect(withRelativePaths(text, "/w/a b")).toBe("at ./m.py:9\nat /w/a bc/m.py:9\nat /w/a b/m.py");
    expect(withRelativePaths("at /m.py:9", "/")).toBe("at ./m.py:9");
    expect(placesIn("Recompile: f\nat /w/m.py:9\nlook at /w/m.py:8\nat C:\\m.py:7")).toEqual([
        { path: "/w/m.py", line: 9 },
        { path: "C:\\m.py", line: 7 },
    ]);
    expect(placesIn("at ./m.py:9", "/w")).toEqual([{ path: "/w/m.py", line: 9 }]);
});

test("a log message failed if none of its hits had a value", () => {
    const logs = new FailedLogs();
    logs.add("/a.py", 2, { y: "<y: EvaluationError: not assigned yet>" });
    logs.add("/a.py", 2, { y: "<y: EvaluationError: not assigned yet>" });
    logs.add("/a.py", 3, { y: "<y: NameError: y>" });
    logs.add("/a.py", 3, { y: "1.0" });
    expect(logs.failed()).toMatchObject([{ line: 2, hits: 2, expression: "y", problem: "not assigned yet" }]);
});

test("the links to fixes above a line fit into it", () => {
    const [mark, other] = ["Mark size 0 of x as dynamic before the call (maybe_mark_dynamic)", "Compile for all sizes (dynamic=True)"];
    const trials = (...titles: string[]): boolean[] => fixLinks(titles.map((title) => ({ title }))).map(({ isTrial }) => isTrial);
    const notTried = (title: string): string => `${title} (not tried)`;
    expect(trials(notTried(mark), `Try this fix: ${mark}`, notTried(other), `Try this fix: ${other}`)).toEqual([false, true]);
    expect(trials(notTried(other), `Try this fix: ${other}`, notTried("Short"))).toEqual([false, true, false]);
    expect(trials(`Try this fix: ${"x".repeat(200)}`), "the first one in any case").toEqual([false]);
});

test("values at the ends of lines show small data completely, and larger data not at all", () => {
    expect(briefValue("Tensor f32[] cpu = 0.4327")).toBe("0.4327");
    expect(briefValue("Parameter f32[2] cpu = [0.5, 1.0], requires_grad")).toBe("f32[2] = [0.5, 1.0]");
    expect(briefValue("Tensor f32[2] cpu = [0.5, 1.0]")).toBe("f32[2] = [0.5, 1.0]");
    expect(briefValue("Tensor f32[] cpu = 0.4327 (not proven), requires_grad")).toBe("0.4327 (not proven)");
    expect(briefValue("Tensor f32[3, 4] cpu requires_grad")).toBe("f32[3, 4]");
    expect(briefValue("Tensor f32[4, 15] cpu 0…1, requires_grad")).toBe("f32[4, 15] 0…1");
    expect(briefValue("Tensor f32[40] cpu -0.5…2, 3 NaN")).toBe("f32[40] -0.5…2, 3 NaN");
    expect(briefValue("Parameter b8[20] cpu all True")).toBe("b8[20] all True");
    expect(briefValue(`Tensor f64[8] cpu = [${"0.123456789, ".repeat(8)}]`)).toBe("f64[8]");
    const mask = "Tensor f32[4, 15] cpu";
    expect(briefValue(`[${mask}, ${mask}, ${mask}, ${mask}, …] (5 items)`)).toBe("[f32[4, 15], f32[4, 15], +3 more]");
    expect(briefValue(`(${mask} = [[1.0, 2.0], [3.0]], Parameter f32[] cpu requires_grad)`)).toBe("(f32[4, 15], f32[])");
    expect(briefValue(`[${mask}, ${mask}, 3, ${mask}]`), "not only tensors").toContain("…");
    expect(briefValue("x".repeat(50))).toHaveLength(40);
});

test("modules and self are not shown at the ends of lines", () => {
    expect(isWorthShowing("self", "<Block module>")).toBe(false);
    expect(isWorthShowing("self", "Block(\n  (linear): Linear()\n)")).toBe(false);
    expect(isWorthShowing("layer", "<torch.nn.Linear module>")).toBe(false);
    expect(isWorthShowing("torch", "<module torch>")).toBe(false);
    expect(isWorthShowing("layer", "Tensor f32[2] cpu")).toBe(true);
    expect(isWorthShowing("name", "'<Block module>'")).toBe(true);
});

test("Triton's filters are offered to programs that use Triton", async ({}, info) => {
    const known = ["nan", "recompile", "race", "out-of-bounds", "kernel-mismatch"];
    const offered = async (configuration: object): Promise<string[]> => offeredFilters(["nan", "other"], known, { type: "dynamo", name: "x", request: "launch", ...configuration });
    const withTriton = ["nan", "race", "out-of-bounds", "kernel-mismatch"];
    expect(await offered({ program: "/nowhere.py" })).toEqual(["nan"]);
    expect(await offered({})).toEqual(["nan"]);
    expect(await offered({ triton: "interpret" })).toEqual(withTriton);
    expect(await offered({ code: ["import torch", "import triton.language as tl"] })).toEqual(withTriton);
    const program = info.outputPath("program.py");
    for (const [text, uses] of [["import triton\n", true], ["if x:\n    from triton import jit\n", true], ["import torch, triton\n", true], ["import tritonclient\nfrom mine import triton\n# import triton\n", false], ["x = 'triton'\n", false]] as const) {
        await writeFile(program, text);
        expect(await offered({ program }), text).toEqual(uses ? withTriton : ["nan"]);
    }
});

test("fixes are requested again if a request fails, finds nothing, or is never answered", async () => {
    const answers = [Promise.reject(new Error("not yet")), Promise.resolve(false), new Promise<boolean>(() => undefined), Promise.resolve(true)];
    let asked = 0;
    const ask = (): Promise<boolean> => answers[asked++] ?? Promise.resolve(true);
    const pace = { patience: 20, pause: 1, longestPause: 4 };
    await askUntilFound(ask, () => false, pace);
    expect(asked, "the last one found something").toBe(4);
    await askUntilFound(ask, () => true, pace);
    expect(asked, "the stop is over").toBe(4);
    expect(await answer(new Promise<string>(() => undefined), "none", 20)).toBe("none");
});
