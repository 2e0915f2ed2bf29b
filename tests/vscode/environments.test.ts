/** Without the Python extension: which environment is found, and what happens if the installation fails. */

import type { Locator } from "@playwright/test";
import { appendFile, mkdir, readdir, rm, symlink } from "node:fs/promises";
import { dirname, join } from "node:path";

import { run } from "./harness/commands.js";
import { at } from "./harness/debug-panes.js";
import { cache, repository } from "./harness/places.js";
import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";
import type { Workbench } from "./harness/workbench.js";
import type { Workspace } from "./harness/workspace.js";

// No interpreter is chosen.
test.use({ settings: {} });

/** An environment with torch and without dynamo-dap. */
async function makeEnvironment(folder: string): Promise<void> {
    await run(python(), ["-m", "venv", folder]);
    await run(python(), ["-m", "tests.release.link_torch", folder], { cwd: repository });
}

async function start(vscode: Workbench, workspace: Workspace): Promise<void> {
    await workspace.remove(".vscode/launch.json");
    await vscode.openFile("basic.py");
    await vscode.editor.setBreakpoint(await workspace.line("basic.py", "first"));
    await vscode.startDebugging();
}

function failure({ page }: Workbench): Locator {
    return page.locator(".notification-toast", { hasText: /Installing dynamo-dap into .* failed/ });
}

for (const name of [".conda", "venv"]) {
    test(`the environment ${name} of the workspace is found: it has torch`, async ({ vscode, workspace }) => {
        // The environment that is tried first has no torch.
        await run(python(), ["-m", "venv", "--without-pip", join(workspace.folder, ".venv")]);
        await symlink(dirname(dirname(python())), join(workspace.folder, name));
        await start(vscode, workspace);
        await vscode.debug.waitForStop(at("compute", "basic.py", await workspace.line("basic.py", "first")));
        const rows = await vscode.debug.evaluate("__import__('sys').executable");
        await expect(rows.filter({ hasText: `/${name}/bin/` }).first()).toBeVisible();
    });
}

test("an externally managed environment: the reason of the failure, and three alternatives", async ({ vscode, workspace, picture }) => {
    const environment = join(workspace.folder, "managed");
    await makeEnvironment(environment);
    await manageExternally(environment);
    await workspace.write(".vscode/settings.json", JSON.stringify({ "dynamo.python": join(environment, "bin/python") }));
    await start(vscode, workspace);
    await (await vscode.dialog()).getByRole("button", { name: "Install" }).click();
    const toast = failure(vscode);
    await expect(toast, "in one line").toContainText("the operating system manages its packages");
    await picture("externally-managed");
    await toast.getByRole("button", { name: "Show Log" }).click();
    await expect(vscode.page.locator(".view-line", { hasText: /managed\sby\sa\stest/ })).toBeVisible();

    await vscode.openFile("basic.py");
    await vscode.startDebugging();
    await (await vscode.dialog()).getByRole("button", { name: "Install" }).click();
    await expect(toast.getByRole("button", { name: "Choose Interpreter" })).toBeVisible();
    await toast.getByRole("button", { name: "Create Environment" }).click();
    await expect.poll(() => readdir(join(workspace.folder, ".venv")).catch(() => [])).toContain("bin");
});

test("Install It Now on the Welcome page installs with uv into an environment of uv, and is ticked", async ({ vscode, workspace, server, picture }) => {
    const tools = join(cache, "uv");
    await rm(tools, { recursive: true, force: true });
    await mkdir(cache, { recursive: true });
    await run(python(), ["-m", "venv", tools]);
    await run(join(tools, "bin/python"), ["-m", "pip", "install", "--quiet", "uv"]);
    const environment = join(workspace.folder, ".venv");
    await run(join(tools, "bin/uv"), ["venv", "--quiet", "--python", python(), environment]);
    await run(python(), ["-m", "tests.release.link_torch", environment], { cwd: repository });
    const folder = join(server.environment.HOME ?? "", ".local/bin");
    await mkdir(folder, { recursive: true });
    await symlink(join(tools, "bin/uv"), join(folder, "uv"));

    const { page } = vscode;
    await vscode.command("torch.compile: Choose Interpreter");
    const offered = page.locator(".quick-input-list .monaco-list-row", { hasText: join(environment, "bin/python") });
    await expect(offered).toContainText(/torch 2\.\d+\S*, dynamo-dap missing/);
    await picture("interpreters");
    await page.keyboard.press("Escape");
    await vscode.command("Welcome: Open Walkthrough");
    await vscode.quickInput.choose("Debug torch.compile");
    const step = page.locator(".getting-started-step", { hasText: "Install dynamo-dap next to torch" });
    await step.locator(".step-title").click();
    await expect(step.locator(".codicon-getting-started-step-checked")).toHaveCount(0);
    await step.getByRole("button", { name: "Install It Now" }).click();
    await expect(page.locator(".notification-toast", { hasText: "is installed in the environment of" })).toBeVisible({ timeout: 60_000 });
    await expect(step.locator(".codicon-getting-started-step-checked").first(), "it is done").toBeVisible();
    await start(vscode, workspace);
    await vscode.debug.waitForStop(at("compute", "basic.py", await workspace.line("basic.py", "first")));
});

/** Marks an environment like the Python of a Linux distribution, into which pip refuses to install. */
async function manageExternally(environment: string): Promise<void> {
    const [version = ""] = await readdir(join(environment, "lib"));
    const library = join(environment, "lib", version);
    const text = "This environment is externally managed by a test.";
    await appendFile(join(library, "EXTERNALLY-MANAGED"), `[externally-managed]\nError=${text}\n`);
    const asNoVirtualEnvironment = `import sys, sysconfig
sys.base_prefix = sys.prefix
path = sysconfig.get_path
sysconfig.get_path = lambda name, *rest, **named: ${JSON.stringify(library)} if name == "stdlib" else path(name, *rest, **named)
`;
    await appendFile(join(library, "site-packages/sitecustomize.py"), asNoVirtualEnvironment);
}
