/** The ranks of a distributed job are sessions with their names, which stop and continue together when asked to. */

import { spawn, type ChildProcess } from "node:child_process";

import { at, type DebugPanes } from "./harness/debug-panes.js";
import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";

const FILE = "spins.py";
const HELD = [expect.stringMatching(/^rank 0 \(local 0\) PAUSED/), expect.stringMatching(/^rank 1 \(local 1\) PAUSED/)];
const BREAKPOINT_LINE = 6;
const PROGRAM = `import os
import time


while not os.path.exists("go"):
    time.sleep(0.05)
print("over", os.environ["RANK"])
`;

test("ranks have their names in the call stack, and stop and continue together", async ({
    vscode,
    workspace,
    picture,
}) => {
    const { debug, page } = vscode;
    const job = {
        name: "job",
        type: "dynamo",
        request: "launch",
        module: "torch.distributed.run",
        args: ["--standalone", "--nproc-per-node=2", FILE],
        cwd: "${workspaceFolder}",
        stopRanks: "together",
    };
    await workspace.write(FILE, PROGRAM);
    await workspace.write(".vscode/launch.json", JSON.stringify({ version: "0.2.0", configurations: [job] }));
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(BREAKPOINT_LINE);
    await vscode.startDebugging();
    // One is at the breakpoint, and the other one wherever it was paused for that.
    const held = async (): Promise<string[]> =>
        (await debug.texts("call-stack")).filter((row) => row.startsWith("rank ") && row.includes("PAUSED")).sort();
    await expect.poll(held, { message: "both ranks are held", timeout: 90_000 }).toEqual(HELD);
    await picture("ranks");
    // The job ends when both go on, and one is told to.
    await workspace.write("go", "");
    await page.keyboard.press("F5");
    await debug.waitForEnd();
});

const STEPPED = "steps.py";
const TURN_LINE = 5;
/** Where a step over leads from a line of the loop. */
const NEXT_LINES = new Map([[4, 5], [5, 6], [6, 7], [7, 8], [8, 4]]);
const [STEP_OVER, CONTINUE] = [/^Step Over/, /^Continue/];
const STEPPED_PROGRAM = `import os
import time

while not os.path.exists("go"):
    turn = 0
    turn += 1
    turn += 2
    time.sleep(0.05)
print("over", os.environ["RANK"])
`;

/** The line that each rank is held at, by the call stack. */
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
    const rows = await debug.texts("call-stack");
    const frame = rows.findIndex((row) => row.startsWith(rank)) + 1;
    await debug.rows("call-stack").nth(frame).click({ timeout: 1000 });
    await expect(debug.rows("call-stack").nth(frame)).toHaveAttribute("aria-selected", "true", { timeout: 1000 });
    await debug.page.getByRole("button", { name: button }).click({ timeout: 1000 });
}

for (const how of ["together", "alone"]) {
    test(`the toolbar steps ranks ${how}`, async ({ vscode, workspace, picture }) => {
        const { debug } = vscode;
        const args = ["--standalone", "--nproc-per-node=2", STEPPED];
        const job = { name: "job", type: "dynamo", request: "launch", module: "torch.distributed.run", args, stopRanks: how };
        await workspace.write(STEPPED, STEPPED_PROGRAM);
        const configurations = [{ ...job, cwd: "${workspaceFolder}" }];
        await workspace.write(".vscode/launch.json", JSON.stringify({ version: "0.2.0", configurations }));
        await vscode.openFile(STEPPED);
        await vscode.editor.setBreakpoint(TURN_LINE);
        await vscode.startDebugging();
        const expectLines = async (what: string, lines: Record<string, number>): Promise<void> => {
            await expect.poll(() => heldAt(debug).catch(String), { message: what, timeout: 30_000 }).toEqual(lines);
        };
        await expect(debug.row("call-stack", "steps.py")).toBeVisible({ timeout: 90_000 });
        for (const pane of ["Variables", "Watch", "Breakpoints"]) {
            await debug.foldPane(pane, false);
        }
        // Of two that stop together one is at the breakpoint, and the other one anywhere in the loop.
        const lines: Record<string, number> = {};
        await expect(async () => {
            Object.assign(lines, await heldAt(debug));
            expect(Object.keys(lines).sort()).toEqual(["rank 0", "rank 1"]);
        }, "both are held").toPass({ timeout: 90_000, intervals: [1000] });
        expect(Object.values(lines)).toContain(TURN_LINE);
        // Those at the same line step together: it is brought there, by itself.
        for (const rank of Object.keys(lines)) {
            while (lines[rank] !== TURN_LINE) {
                await press(debug, rank, STEP_OVER);
                lines[rank] = NEXT_LINES.get(lines[rank] ?? 0) ?? 0;
                await expectLines(`on the way of ${rank} to the breakpoint`, lines);
            }
        }
        for (const rank of ["rank 0", "rank 1"]) {
            await press(debug, rank, STEP_OVER);
            for (const each of how === "together" ? ["rank 0", "rank 1"] : [rank]) {
                lines[each] = NEXT_LINES.get(lines[each] ?? 0) ?? 0;
            }
            await expectLines(`after a step of ${rank}`, lines);
        }
        await picture(`ranks-stepped-${how}`);
        await workspace.write("go", "");
        await press(debug, "rank 1", CONTINUE);
        if (how === "alone") {
            await expectLines("rank 0 is held still", { "rank 0": lines["rank 0"] ?? 0 });
            await press(debug, "rank 0", CONTINUE);
        }
        await debug.waitForEnd();
    });
}

test("ranks connect back to a session that waits for them", async ({ vscode, workspace, server }) => {
    const { debug, page } = vscode;
    const job = { name: "rank 0", type: "dynamo", request: "attach", listen: { port: 0 }, stopRanks: "together" };
    await workspace.write(FILE, PROGRAM);
    await workspace.write(".vscode/launch.json", JSON.stringify({ version: "0.2.0", configurations: [job] }));
    await vscode.openFile(FILE);
    await vscode.editor.setBreakpoint(BREAKPOINT_LINE);
    await vscode.startDebugging();
    await debug.console();
    const told = /DYNAMO_DAP_CONNECT='(.+?)'/;
    const row = debug.consoleRows().filter({ hasText: told });
    await expect(row, "the console says what to export").toBeVisible({ timeout: 30_000 });
    const address = told.exec(await row.innerText())?.[1] ?? "";
    const ranks: ChildProcess[] = [];
    try {
        const begin = (rank: string): void => {
            const job = { RANK: rank, LOCAL_RANK: "0", WORLD_SIZE: "2", DYNAMO_DAP_CONNECT: address };
            const env = { ...process.env, ...server.environment, ...job };
            const command = ["-m", "dynamo_dap", "connect", FILE];
            ranks.push(spawn(python(), command, { cwd: workspace.folder, env, stdio: "inherit" }));
        };
        begin("0");
        await debug.waitForStop(at("<module>", FILE, BREAKPOINT_LINE));
        begin("1");
        const held = async (): Promise<string[]> =>
            (await debug.texts("call-stack")).filter((row) => row.startsWith("rank ") && row.includes("PAUSED")).sort();
        const both = [expect.stringMatching(/^rank 0 PAUSED/), expect.stringMatching(/^rank 1 \(local 0\) PAUSED/)];
        await expect.poll(held, { message: "both ranks are held", timeout: 60_000 }).toEqual(both);
        await workspace.write("go", "");
        await page.keyboard.press("F5");
        await debug.waitForEnd();
        const codes = (): (number | null)[] => ranks.map((rank) => rank.exitCode);
        await expect.poll(codes, { message: "both have ended", timeout: 30_000 }).toEqual([0, 0]);
    } finally {
        for (const rank of ranks) {
            rank.kill("SIGKILL");
        }
    }
});

test("what FSDP does with a module stands below its compile", async ({ vscode, workspace, picture }) => {
    const { compiles, debug } = vscode;
    const file = "fsdp_blocks.py";
    const line = await workspace.line(file, "step");
    const args = ["--standalone", "--nproc-per-node=2", file, "blocks"];
    const job = { name: "job", type: "dynamo", request: "launch", module: "torch.distributed.run", args, ranks: [0] };
    const configurations = [{ ...job, cwd: "${workspaceFolder}" }];
    await workspace.write(".vscode/launch.json", JSON.stringify({ version: "0.2.0", configurations }));
    await vscode.openFile(file);
    await vscode.editor.setBreakpoint(line);
    await vscode.startDebugging();
    await expect(debug.row("call-stack", file), "rank 0 stops").toBeVisible({ timeout: 120_000 });
    for (const pane of ["Variables", "Watch", "Breakpoints"]) {
        await debug.foldPane(pane, false);
    }
    await debug.foldPane("torch.compile: Compiles", true);
    await compiles.open("Compiles", "0/0");
    const row = await compiles.reveal("Compiles", "FSDP: first");
    await expect(row).toContainText("4 parameters (1120 bytes) of 2 ranks, gathered before the call by a hook, in no graph");
    await picture("ranks-sharding");
    await debug.page.keyboard.press("Shift+F5");
    await debug.waitForEnd();
});
