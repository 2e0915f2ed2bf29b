/**
 * A new user: the extension, a folder with a program and an environment that has torch, and nothing else. The extension
 * finds the environment and installs the package that it carries, with what that requires from the registry.
 */

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

import { run } from "./harness/commands.js";
import { at } from "./harness/debug-panes.js";
import { repository } from "./harness/places.js";
import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";

const PROGRAM = `import torch


@torch.compile(backend="eager")
def scale(x, y):
    z = x * 2
    return z + y


for number in range(3):
    scale(torch.full((2,), float(number)), torch.ones(2))
`;

// No interpreter is chosen.
test.use({ settings: {} });

test("a new user gets from an empty environment to a stop in a cached call", async ({ vscode, workspace }) => {
    const { debug } = vscode;
    const environment = join(workspace.folder, ".venv");
    await run(python(), ["-m", "venv", environment]);
    await run(python(), ["-m", "tests.release.link_torch", environment], { cwd: repository });
    await workspace.remove(".vscode/launch.json");
    await workspace.write("program.py", PROGRAM);
    await vscode.openFile("program.py");
    await vscode.editor.setBreakpoint(7);
    await vscode.startDebugging();
    const dialog = await vscode.dialog();
    await expect(dialog).toContainText(`dynamo-dap isn't installed in this environment (${environment}/bin/python).`);
    await dialog.getByRole("button", { name: "Install" }).click();
    await debug.waitForStop(at("scale", "program.py", 7));
    const [version] = await readdir(join(environment, "lib"));
    const packages = join(environment, "lib", version ?? "", "site-packages");
    const [installed] = (await readdir(packages)).filter((name) => /^dynamo_dap-.*dist-info$/.test(name));
    const origin = await readFile(join(packages, installed ?? "", "direct_url.json"), "utf8");
    expect(origin, "installed from the extension, not by a name in a registry").toMatch(/file:.*wheel.*\.whl/);
    await debug.press("F5");
    await expect(debug.headline()).toHaveText("Call 2 of scale [0/0]", { timeout: 60_000 });
    await debug.waitForStop(at("scale", "program.py", 7));
    await expect(debug.row("variables", "z =")).toContainText("[2.0, 2.0]");
    await debug.press("Shift+F5");
    await debug.waitForEnd();
    const lens = vscode.page.locator(".codelens-decoration a", { hasText: /^1 graph/ });
    await expect(lens, "the language server started after the installation").toBeVisible({ timeout: 60_000 });
});
