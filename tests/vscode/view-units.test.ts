/** The rows of the views about compiles: pure functions, without a browser. */

import { expect, test } from "@playwright/test";
import { rename, writeFile } from "node:fs/promises";

import type { Compile, CompiledFunction, Guard } from "../../vscode-extension/src/session/requests.js";
import { attemptRows } from "../../vscode-extension/src/views/attempt-rows.js";
import { findingsOf, merged, shortTitle } from "../../vscode-extension/src/views/finding-list.js";
import { followPage } from "../../vscode-extension/src/views/growing-page.js";
import { groupedGuards } from "../../vscode-extension/src/views/guard-groups.js";

test("checks of one guard are one group, and no check is lost", () => {
    const of = (expression: string, source = "x"): Guard => ({ expression, type: "TENSOR_MATCH", source });
    const guards = [
        of("hasattr(L['x'], '_dynamo_dynamic_indices') == False"),
        of("check_tensor(L['x'])"),
        of("hasattr(L['x'], '_dynamo_static_indices') == False"),
        of("check_tensor(L['y'])", "y"),
        { expression: "a", type: "GLOBAL_STATE" },
        { expression: "b", type: "GLOBAL_STATE" },
    ];
    const groups = groupedGuards(guards);
    expect(groups.map((group) => group.length)).toEqual([3, 1, 1, 1]);
    expect(groups.flat()).toEqual(guards);
});

test("several compiles' reports about a line are one finding, errors first", () => {
    const place = { path: "/project/model.py", line: 3 };
    const compiled: CompiledFunction = { name: "f", place, compiles: [] };
    const compile: Compile = { id: "0/1", name: "f", state: "compiled", attempts: [], graphs: [], breaks: [{ reason: "Data-dependent branching", place, hints: ["Use torch.where"] }], failures: [{ compileId: "0/0", expression: "L['n'] == 1", reason: "", text: "n == 1", valueThen: "1", valueNow: "2", place: { ...place, line: 4 } }] };
    const again: Compile = { ...compile, id: "0/2", failures: [], state: "failed", problem: "BackendError: no\nmore" };
    const found = merged([...findingsOf(compiled, compile), ...findingsOf(compiled, again)]);
    expect(found.map(({ title, place: { line } }) => [title, line])).toEqual([
        ["Compile failed: BackendError: no", 3],
        ["Recompiled: n == 1", 4],
        ["Graph break: Data-dependent branching", 3],
    ]);
    expect(found[1]?.details).toEqual(["A guard of [0/0] failed (then 1, now 2)", "In f [0/1]"]);
    expect(found[2]?.details).toEqual(["Use torch.where", "In f [0/1]", "In f [0/2]"]);
});

test("details of a session that its record repeats in other words are shown once", () => {
    const finding = { title: "Graph break: no", place: { path: "/project/model.py", line: 3 }, severity: "warning" as const };
    const hint = "Hint (not tried): Use torch.where";
    const ofSession = [1, 2].map((attempt) => ({ ...finding, isRecorded: false, details: ["the rest is compiled", "Use torch.where", `In f [0/${attempt}]`] }));
    const recorded = { ...finding, isRecorded: true, details: ["Then: the rest is compiled", "In f [0/1], f [0/2]", hint] };
    expect(merged([...ofSession, recorded])[0]?.details).toEqual(recorded.details);
    const other = { ...recorded, details: ["In f [0/1]", "Then: another"] };
    expect(merged([...ofSession, other])[0]?.details).toEqual(["the rest is compiled", "Use torch.where", "In f [0/1]", "In f [0/2]", "Then: another"]);
});

test("a row of a finding begins with the cause, in few characters", () => {
    const shown = (title: string): string[] => Object.values(shortTitle(title));
    expect(shown("Graph break: Data-dependent branching")).toEqual(["Graph break", "Data-dependent branching"]);
    expect(shown("Recompiled: self.layers[0].weight: expected size 3 of 2, and 4 of another")).toEqual(["Recompiled", "self.layers[0].weight: expected size 3…"]);
    expect(shown(`Recompiled: ${"x".repeat(60)}`)).toEqual(["Recompiled", `${"x".repeat(39)}…`]);
    expect(shown("x: a title without a kind")).toEqual(["", "x: a title without a kind"]);
    expect(shown("Recompiled: ")).toEqual(["", "Recompiled: "]);
});

test("attempts of a compile say how each ended; a single attempt is not listed", () => {
    const compile: Compile = { id: "0/0", name: "f", state: "compiled", attempts: [{ number: 1 }], graphs: [], breaks: [] };
    expect(attemptRows(compile)).toEqual([]);
    const attempts = [{ number: 1, restarted: "a float became an input" }, { number: 2 }];
    const last = (changes: Partial<Compile>): string | undefined => attemptRows({ ...compile, attempts, ...changes })[1]?.result;
    expect(attemptRows({ ...compile, attempts })[0]).toEqual({ label: "Attempt 1", result: "restarted: a float became an input" });
    expect(last({})).toBe("traced to the end");
    expect(last({ state: "tracing" })).toBe("not finished");
    expect(last({ breaks: [{ reason: "Data-dependent branching" }] })).toContain("graph break: Data-dependent branching");
    expect(last({ state: "failed", problem: "BackendError: no\nmore" })).toBe("failed: BackendError: no");
});

test("the page of the first part is shown, then the complete page; neither reloads", async ({}, info) => {
    const [path, next] = [info.outputPath("report.html"), info.outputPath("next.html")];
    await writeFile(path, "<head><meta http-equiv='refresh' content='5'></head>43% so far");
    const shown: string[] = [];
    const stop = await followPage(path, (html) => shown.push(html));
    expect(shown).toEqual(["<head></head>43% so far"]);
    await writeFile(next, "<head></head>the whole");
    await rename(next, path);
    await expect.poll(() => shown.at(-1)).toBe("<head></head>the whole");
    stop();
});
