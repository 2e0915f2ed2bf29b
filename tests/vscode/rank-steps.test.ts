/** The toolbar steps the ranks of a distributed job: ranks at the same line together, or each alone. */

import type { DebugPanes } from "./harness/debug-panes.js";
import { LATE } from "./harness/late.js";
import { expect, test } from "./harness/test.js";
import { jobJson } from "./harness/workspace.js";

const FILE = "steps.py";
const TURN_LINE = 5;
/** The line after a step over, for each line of the loop and the lines above it, where a rank may still be. */
const NEXT_LINES = new Map([[1, 2], [2, 4], [4, 5], [5, 6], [6, 7], [7, 8], [8, 4]]);
const [STEP_OVER, CONTINUE] = [/^Step Over/, /^Continue/];
const PROGRAM = `import os
import time

while not os.path.exists("go"):
    turn = 0
    turn += 1
    turn += 2
    time.sleep(0.05)
print("over", os.environ["RANK"])
`;

/** The line at which each rank is held, read from the call stack. */
async function heldAt(debug: DebugPanes): Promise<Record<string, number>> {
    const closed = debug.rows("call-stack").and(debug.page.locator('[aria-expanded="false"]')).filter({ hasText: /^rank \d.*paused/i });
    for (const row of await closed.all()) {
        await row.locator(".monaco-tl-twistie").click({ timeout: 1000 });
    }
    const found: Record<string, number> = {};
    let rank = "";
    for (const row of await debug.texts("call-stack")) {
        rank = /^rank \d+/.exec(row)?.[0] ?? rank;
        const line = /^<module> steps\.py (\d+):/.exec(row)?.[1];
        if (line !== undefined) {
            found[rank] = Number(line);
        }
    }
    return found;
}

/** Presses a button of the toolbar for one rank. */
async function press(debug: DebugPanes, rank: string, button: RegExp): Promise<void> {
    await expect(async () => {
        const rows = await debug.texts("call-stack");
        const frame = debug.rows("call-stack").nth(rows.findIndex((row) => row.startsWith(rank)) + 1);
        await frame.click({ timeout: 3000 });
        await expect(frame).toHaveAttribute("aria-selected", "true", { timeout: 3000 });
    }, `${rank} is selected`).toPass();
    await debug.page.getByRole("button", { name: button }).click();
}

/** The expected line of each rank, which is compared with the call stack after each step. */
class HeldRanks {
    private readonly lines: Record<string, number> = {};

    constructor(private readonly debug: DebugPanes) {}

    async waitForBoth(): Promise<void> {
        await expect(async () => {
            Object.assign(this.lines, await heldAt(this.debug));
            expect(Object.keys(this.lines).sort()).toEqual(["rank 0", "rank 1"]);
        }, "both are held").toPass({ intervals: [1000] });
    }

    /** Steps `rank` over its line, which also steps `others`, and waits until the call stack shows it. */
    async stepOver(rank: string, others: string[] = []): Promise<void> {
        await press(this.debug, rank, STEP_OVER);
        for (const each of [rank, ...others]) {
            this.lines[each] = NEXT_LINES.get(this.lines[each] ?? 0) ?? 0;
        }
        await this.expect(`after a step of ${rank}`, this.lines);
    }

    /** Steps until both ranks are at the breakpoint: of two that stop together, one may be anywhere in the loop. */
    async bringToBreakpoint(): Promise<void> {
        expect(Object.values(this.lines)).toContain(TURN_LINE);
        for (const rank of Object.keys(this.lines)) {
            while (this.lines[rank] !== TURN_LINE) {
                await this.stepOver(rank);
            }
        }
    }

    async expectStill(rank: string): Promise<void> {
        await this.expect(`${rank} is held still`, { [rank]: this.lines[rank] ?? 0 });
    }

    private async expect(what: string, lines: Record<string, number>): Promise<void> {
        await expect.poll(() => heldAt(this.debug).catch(String), { message: what, ...LATE }).toEqual(lines);
    }
}

for (const how of ["together", "alone"]) {
    test(`the toolbar steps ranks ${how}`, async ({ vscode, workspace, picture }) => {
        const { debug } = vscode;
        await workspace.write(FILE, PROGRAM);
        await workspace.write(".vscode/launch.json", jobJson({ stopRanks: how }, FILE));
        await vscode.openFile(FILE);
        await vscode.editor.setBreakpoint(TURN_LINE);
        await vscode.startDebugging();
        await expect(debug.row("call-stack", FILE)).toBeVisible({ timeout: 90_000 });
        for (const pane of ["Variables", "Watch", "Breakpoints"]) {
            await debug.foldPane(pane, false);
        }
        const ranks = new HeldRanks(debug);
        await ranks.waitForBoth();
        await ranks.bringToBreakpoint();
        await ranks.stepOver("rank 0", how === "together" ? ["rank 1"] : []);
        await ranks.stepOver("rank 1", how === "together" ? ["rank 0"] : []);
        await picture(`ranks-stepped-${how}`);
        await workspace.write("go", "");
        await press(debug, "rank 1", CONTINUE);
        if (how === "alone") {
            await ranks.expectStill("rank 0");
            await press(debug, "rank 0", CONTINUE);
        }
        await debug.waitForEnd();
    });
}
