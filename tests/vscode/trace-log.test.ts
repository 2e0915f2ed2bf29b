/** The setting `dynamo.traceLog`: a log from another machine marks the lines of a checkout. */

import { execFile } from "node:child_process";
import { copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";

import { LATE } from "./harness/late.js";
import { python } from "./harness/python.js";
import { expect, test } from "./harness/test.js";

const FILE = "graph_break.py";

test("a trace log that was made in another folder marks the lines of this one", async ({ vscode, workspace }, info) => {
    const { page } = vscode;
    const [job, traces] = [info.outputPath("job"), join(workspace.folder, "traces")];
    await mkdir(job, { recursive: true });
    await copyFile(join(workspace.folder, FILE), join(job, FILE));
    await promisify(execFile)(python(), [FILE], { cwd: job, env: { ...process.env, TORCH_TRACE: traces } });

    const problem = page.locator(".markers-panel .monaco-list-row", { hasText: "Graph break: Call to" });
    await vscode.openFile(FILE);
    await vscode.command("Problems: Focus on Problems View");
    await expect(problem).toHaveCount(0);

    const pathMappings = [{ remoteRoot: job, localRoot: "${workspaceFolder}" }];
    const settings = { "dynamo.traceLog": "${workspaceFolder}/traces", "dynamo.pathMappings": pathMappings };
    await workspace.write(".vscode/settings.json", JSON.stringify(settings));
    await expect(problem).toContainText("GB0025", LATE);
    await expect(problem).toContainText(`[Ln ${await workspace.line(FILE, "break")},`);

    await workspace.write(".vscode/settings.json", "{}");
    await expect(problem, "without the setting").toHaveCount(0, LATE);
});
