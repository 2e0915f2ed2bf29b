/** Outcomes of breakpoints: "Diagnose Breakpoint", the list of those that never stopped, and "Save Diagnostic Logs". */

import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { BreakpointOutcomes } from "../../vscode-extension/src/session/breakpoint-outcomes.js";
import { at } from "./harness/debug-panes.js";
import { expect, test } from "./harness/test.js";

const PROGRAM = `import torch


@torch.compile(backend="eager")
def used(x):
    return x * 2


def never_called(x):
    return x + 1


print(used(torch.ones(2)).sum())
`;

test("breakpoints that never stopped are listed at the end, and the session's logs are saved", async ({ vscode, workspace, picture }) => {
    const { debug, editor, page } = vscode;
    await workspace.write("partly.py", PROGRAM);
    await vscode.openFile("partly.py");
    for (const line of [6, 10]) {
        await editor.setBreakpoint(line);
    }
    await vscode.startDebugging();
    await debug.waitForStop(at("used", "partly.py", 6));
    await debug.press("F5");
    await debug.waitForEnd();
    const outcome = debug.consoleRows().filter({ hasText: "Breakpoints that never stopped:" }).first();
    await expect(outcome).toContainText("partly.py:10 (never_called): never_called was neither traced by Dynamo nor seen");
    await expect(outcome).not.toContainText("partly.py:6");
    await picture("never-stopped");

    await editor.goToLine(6);
    await vscode.command("torch.compile: Diagnose Breakpoint");
    await expect(page.locator(".notification-toast", { hasText: /Line 6: .*; it stopped once/ })).toBeVisible();
    await editor.goToLine(10);
    await vscode.command("torch.compile: Diagnose Breakpoint");
    await expect(page.locator(".notification-toast", { hasText: /Line 10: .*it has not stopped; .*neither traced by Dynamo/ })).toBeVisible();

    await vscode.command("torch.compile: Save Diagnostic Logs");
    await vscode.quickInput.saveAs(join(workspace.folder, "saved.log"));
    await expect(page.locator(".tab.active", { hasText: "saved.log" })).toBeVisible({ timeout: 90_000 });
    const text = await readFile(join(workspace.folder, "saved.log"), "utf8");
    expect(text).toContain('"command":"setBreakpoints"');
    expect(text, "no values, and no output").not.toContain("tensor(");
    await expect.poll(() => page.locator(".codicon-debug-stop").count(), "it is over").toBe(0);
});

test.describe("outcomes of breakpoints", () => {
    const PATH = "/x/a.py";
    const made = (breakpoints: object[], answers: object[]): BreakpointOutcomes => {
        const outcomes = new BreakpointOutcomes();
        set(outcomes, 1, breakpoints, answers);
        return outcomes;
    };
    const set = (outcomes: BreakpointOutcomes, seq: number, breakpoints: object[], answers: object[]): void => {
        const request = { seq, type: "request", command: "setBreakpoints", arguments: { source: { path: PATH }, breakpoints } };
        outcomes.request(request);
        const response = { seq: 9, type: "response", command: "setBreakpoints", request_seq: seq, success: true, body: { breakpoints: answers } };
        outcomes.answer(response);
    };
    const event = (outcomes: BreakpointOutcomes, name: string, body: object): void => {
        const message = { seq: 9, type: "event", event: name, body };
        outcomes.answer(message);
    };
    const lines = (outcomes: BreakpointOutcomes): number[] => outcomes.neverStopped().map(({ line }) => line);

    test("a breakpoint with a condition or a message may have been reached", () => {
        const selective = [{ line: 1, condition: "x" }, { line: 2, hitCondition: "3" }, { line: 3, logMessage: "m" }, { line: 4, condition: "" }];
        const outcomes = made(selective, []);
        expect(lines(outcomes)).toEqual([4]);
        event(outcomes, "dynamoMissed", { breakpoints: [{ path: PATH, line: 1, reason: "never true" }] });
        expect(lines(outcomes), "its reason is known").toEqual([1, 4]);
    });

    test("a stop counts, also after the breakpoint is set again, and so does a step that ends there", () => {
        const outcomes = made([{ line: 1 }, { line: 2 }, { line: 3 }], [{ id: 7, verified: true }, { id: 8, verified: true }, { id: 9, verified: false, message: "why" }]);
        event(outcomes, "stopped", { reason: "breakpoint", hitBreakpointIds: [7] });
        outcomes.answer({ seq: 9, type: "response", command: "stackTrace", success: true, body: { stackFrames: [{ line: 2, source: { path: PATH } }] } } as never);
        set(outcomes, 2, [{ line: 1 }, { line: 2 }, { line: 3 }], [{ id: 7, verified: true }, { id: 8, verified: true }, { id: 9, verified: false, message: "why" }]);
        expect(lines(outcomes)).toEqual([3]);
        expect(outcomes.at(PATH, 3)?.message).toBe("why");
        event(outcomes, "breakpoint", { reason: "changed", breakpoint: { id: 9, verified: true } });
        expect(outcomes.at(PATH, 3)).toMatchObject({ isBound: true });
        expect(outcomes.at(PATH, 3)?.message).toBeUndefined();
    });
});
