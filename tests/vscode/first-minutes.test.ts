/**
 * The first minutes of a new user, without settings, launch.json or the Python extension. Each task takes at most five
 * gestures. Runs in the oldest and in the newest VS Code.
 */

import { at } from "./harness/debug-panes.js";
import { test } from "./harness/newcomer.js";
import { expect } from "./harness/test.js";

test.use({ profile: "empty", settings: {} });

test("F5 finds the workspace's environment and stops in a trace", async ({ gestures, vscode, workspace, picture }, { project }) => {
    const { debug, editor, page } = vscode;
    const line = await workspace.line("basic.py", "first");
    await gestures.do("open the file", () => vscode.openFile("basic.py"));
    await gestures.do("click left of the line", () => editor.clickBreakpoint(line));
    await gestures.do("F5", () => vscode.startDebugging());
    await debug.waitForStop(at("compute", "basic.py", line));
    await expect(page.locator(".notification-toast"), "nothing asks").toHaveCount(0);
    await picture(`first-stop-${project.name}`);
});

test("a recompile says which value changed and what to do", async ({ gestures, vscode, workspace, pictures }) => {
    const { debug, editor, page } = vscode;
    await workspace.write("steps.py", STEPS);
    await gestures.do("open the file", () => vscode.openFile("steps.py"));
    // VS Code shows the filters only after the first session has begun.
    await gestures.do("click left of the first line", () => editor.clickBreakpoint(3));
    await gestures.do("F5", () => vscode.startDebugging());
    await debug.waitForStop(at("<module>", "steps.py", 3));
    await gestures.do("tick the filter", async () => (await debug.reveal("breakpoints", "Recompiles")).getByRole("checkbox").click());
    await gestures.do("F5", () => debug.press("F5"));
    await debug.waitForStop(/^train_step steps.py/);
    const widget = page.locator(".exception-widget");
    await expect(widget).toContainText("value then: 0");
    await expect(widget).toContainText("value now: 1");
    await expect(widget).toContainText("torch.compile(..., dynamic=True)");
    const line = STEPS.split("\n").findIndex((text) => text.includes("(step + 1)")) + 1;
    const link = widget.locator("a", { hasText: `steps.py:${line}` });
    await expect(link, "the guard's line is a link").toBeVisible();
    await pictures("recompile", link);
    // In this widget, VS Code opens links only with this key.
    await link.click({ modifiers: ["Control"] });
    await expect(page.locator(".statusbar"), "the link opens the line").toContainText(`Ln ${line},`);
});

test("VS Code offers only the program's own port for forwarding", async ({ gestures, vscode, workspace }) => {
    const { debug, editor, page } = vscode;
    await workspace.write("served.py", SERVED);
    await gestures.do("open the file", () => vscode.openFile("served.py"));
    await gestures.do("click left of the line", () => editor.clickBreakpoint(10));
    await gestures.do("F5", () => vscode.startDebugging());
    await debug.waitForStop(at("compute", "served.py", 10));
    await gestures.do("the view of ports", () => vscode.command("Ports: Focus on Ports View"));
    // Other processes of this machine have ports, too.
    const rows = page.locator(".panel .monaco-list-row", { hasText: workspace.folder });
    await expect(rows.first(), "VS Code finds ports of the session").toBeVisible({ timeout: 60_000 });
    await expect(rows).toHaveCount(1);
});

/** A program that listens on a port of its own. */
const SERVED = `import socket

import torch

listening = socket.create_server(("127.0.0.1", 0))


@torch.compile(backend="eager")
def compute(x):
    return x + 1


compute(torch.ones(2))
`;

/** A training loop that passes its step as a number, so that the first steps recompile. */
const STEPS = `import torch

model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile(backend="eager")
def train_step(batch, step):
    loss = model(batch).square().mean() / (step + 1)
    return loss


for step in range(4):
    loss = train_step(torch.ones(2, 4), step)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained")
`;
