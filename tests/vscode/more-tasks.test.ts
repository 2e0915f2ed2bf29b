/** More tasks of a user with an empty profile: kernels, ranks, Triton, a notebook, attaching. */

import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";

import { at } from "./harness/debug-panes.js";
import type { Gestures } from "./harness/gestures.js";
import { GATED } from "./harness/programs.js";
import { test } from "./harness/newcomer.js";
import { python } from "./harness/python.js";
import { expect } from "./harness/test.js";
import type { Workbench } from "./harness/workbench.js";
import type { Workspace } from "./harness/workspace.js";

const LATE = { timeout: 240_000 };

test.use({ profile: "empty", settings: {} });
test.beforeEach(() => {
    test.setTimeout(10 * 60_000);
});

/** Starts a ready-made configuration in three gestures, and in a fourth gives the port of a program that listens. */
async function debugAs(name: string, line: number, gestures: Gestures, vscode: Workbench, port?: number): Promise<void> {
    await gestures.do("click left of the line", () => vscode.editor.clickBreakpoint(line));
    await gestures.do("Debug This File As…", () => vscode.command("torch.compile: Debug This File As"));
    await gestures.do(name, () => vscode.quickInput.choose(name));
    if (port !== undefined) {
        await gestures.do("its port", () => vscode.quickInput.answer(String(port)));
    }
}

test("the kernel of a line", async ({ gestures, vscode, workspace, pictures }) => {
    await workspace.write("gated.py", GATED);
    await gestures.do("open the file", () => vscode.openFile("gated.py"));
    await debugAs("with its stages", 11, gestures, vscode);
    await expect(vscode.debug.row("call-stack", "<module>", "gated.py", "11:")).toBeVisible(LATE);
    await gestures.do("Ctrl+Alt+E", () => vscode.page.keyboard.press("Control+Alt+e"));
    const kernels = vscode.page.locator(".editor-group-container", { has: vscode.page.locator(".tab.active", { hasText: "forward-kernels of" }) });
    const marked = kernels.locator(".view-overlays .cdr[class*='ced-']").first();
    await expect(marked, "the kernel of the line").toBeVisible(LATE);
    await pictures("kernel", marked);
});

test("both ranks of a job of torchrun", async ({ gestures, vscode, workspace, pictures }) => {
    await workspace.write("ranks.py", RANKS);
    await gestures.do("open the file", () => vscode.openFile("ranks.py"));
    await debugAs("torchrun", 9, gestures, vscode);
    await expect(vscode.debug.row("call-stack", "Tracing step"), "a rank stops at the line").toBeVisible(LATE);
    // The pane shows six rows at first, too few for both ranks if the stack of the first one is open.
    await gestures.do("fold Watch", () => vscode.debug.foldPane("Watch", false));
    await vscode.debug.reveal("call-stack", "rank 0", "Tracing step");
    await pictures("ranks", await vscode.debug.reveal("call-stack", "rank 1", "Tracing step"));
});

test("the values inside a Triton kernel", async ({ gestures, vscode, workspace, pictures }) => {
    const line = await workspace.line("triton_programs/vector_add.py", "call");
    await gestures.do("open the file", () => vscode.openFile("triton_programs/vector_add.py"));
    await debugAs("Triton kernels on the CPU", line, gestures, vscode);
    await vscode.debug.waitForStop(at("add_kernel", "vector_add.py", line));
    const block = await vscode.debug.reveal("variables", "mask =");
    await expect(block).toContainText("[4]");
    await pictures("triton", block);
});

test("a compiled function that a cell of a notebook calls", async ({ gestures, vscode, workspace, pictures, server }) => {
    await workspace.write("scaling.py", SCALING);
    const [kernel, port] = await listening(workspace, server.environment, "-c", NOTEBOOK);
    try {
        await gestures.do("open the file", () => vscode.openFile("scaling.py"));
        await debugAs("attach", 6, gestures, vscode, port);
        // The call stack also shows the kernel's own threads.
        await expect(vscode.debug.row("call-stack", "scale", "scaling.py", "6:")).toBeVisible(LATE);
        const value = await vscode.debug.reveal("variables", "x =");
        await expect(value).toContainText("[1.0, 1.0]");
        await pictures("notebook", value);
    } finally {
        kernel.kill("SIGKILL");
    }
});

test("a stop in a program that already runs", async ({ gestures, vscode, workspace, pictures, server }) => {
    const [program, port] = await listening(workspace, server.environment, "listening.py");
    try {
        const line = await workspace.line("listening.py", "return");
        await gestures.do("open the file", () => vscode.openFile("listening.py"));
        await debugAs("attach", line, gestures, vscode, port);
        await vscode.debug.waitForStop(at("compute", "listening.py", line));
        const value = await vscode.debug.reveal("variables", "y =");
        await expect(value).toContainText("f32[2]");
        await pictures("attach", value);
    } finally {
        program.kill("SIGKILL");
    }
});

/** Starts Python with a program that prints the port at which it listens. */
async function listening(workspace: Workspace, environment: NodeJS.ProcessEnv, ...program: string[]): Promise<[ChildProcess, number]> {
    const env = { ...process.env, ...environment };
    const started = spawn(python(), program, { cwd: workspace.folder, env, stdio: ["ignore", "pipe", "inherit"] });
    for await (const line of createInterface({ input: started.stdout })) {
        const port = /^listening on .*:(\d+)$/.exec(line)?.[1];
        if (port !== undefined) {
            started.stdout.resume();
            return [started, Number(port)];
        }
    }
    throw new Error("the program ended before it listened");
}

const RANKS = `import torch
import torch.distributed as dist

dist.init_process_group("gloo")


@torch.compile(backend="eager")
def step(x):
    y = x * 2
    return y.sum()


step(torch.ones(4))
dist.destroy_process_group()
`;

const SCALING = `import torch


@torch.compile(backend="eager")
def scale(x):
    y = x * 2
    return y.sum() + y.mean()
`;

/** Runs cells in a real kernel of Jupyter, as a user would. The second cell runs repeatedly. */
const NOTEBOOK = `
import time
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel()
client.execute("import dynamo_dap, scaling, torch; print('listening on %s:%s' % dynamo_dap.listen(0))")
while True:
    message = client.get_iopub_msg(timeout=120)
    text = message["content"].get("text", "")
    if text.startswith("listening"):
        print(text, end="", flush=True)
        break
while True:
    client.execute("dynamo_dap.wait_for_client(); scaling.scale(torch.ones(2)).item()")
    time.sleep(1)
`;
