/**
 * Installs the extension's wheel into an environment with pip. Environments made by uv have no pip: there it uses uv.
 * If the installation fails, reports why, and offers to choose or create another environment.
 */

import { execFile, type ExecFileOptions } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import * as vscode from "vscode";

import { showError } from "../notifications.js";
import { createEnvironment } from "./creation.js";
import { chooseInterpreter } from "./interpreter.js";

export const PACKAGE = "dynamo-dap";
/** An error of pip and uv, which refuse to install into an environment that the operating system manages. */
const MANAGED = /externally.managed/;

/** Shows the output of a failed pip. */
export const log = vscode.window.createOutputChannel(vscode.l10n.t("torch.compile installation"));

interface Ended {
    ok: boolean;
    output: string;
}

/** Installs the package; false, with a message, if that fails. */
export async function installInto(extensionPath: string, python: readonly string[], scope?: vscode.Uri): Promise<boolean> {
    const progress = { location: vscode.ProgressLocation.Notification, title: vscode.l10n.t("Installing {0} …", PACKAGE) };
    const wheel = await packagedWheel(extensionPath);
    const ended = await vscode.window.withProgress(progress, () => install(python, wheel));
    if (!ended.ok) {
        log.appendLine(`${python.join(" ")} -m pip install ${wheel}\n${ended.output}`);
        void offerAfterFailure(vscode.l10n.t("Installing {0} into {1} failed: {2}", PACKAGE, python.join(" "), reason(ended.output)), python, scope);
    } else {
        void vscode.commands.executeCommand("setContext", "dynamo.isInstalled", true);
        // Without the package, the language server did not start.
        await vscode.commands.executeCommand("dynamo.restartLanguageServer");
    }
    return ended.ok;
}

/** Installs with pip; with uv if pip is missing and uv is found. */
async function install(python: readonly string[], wheel: string): Promise<Ended> {
    // The output may be shown in a message, where colors appear as escape sequences.
    const env = { ...process.env, NO_COLOR: "1", FORCE_COLOR: undefined };
    const byPip = await run(python, ["-m", "pip", "install", "--disable-pip-version-check", wheel], { env });
    const uv = byPip.ok || !/No module named pip$/m.test(byPip.output.trim()) ? undefined : findUv();
    return uv === undefined ? byPip : run([uv], ["pip", "install", "--python", python[0] ?? "", wheel], { env });
}

function findUv(): string | undefined {
    const name = process.platform === "win32" ? "uv.exe" : "uv";
    const folders = [...(process.env.PATH ?? "").split(delimiter), join(homedir(), ".local/bin"), join(homedir(), ".cargo/bin")];
    return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

async function offerAfterFailure(text: string, python: readonly string[], scope: vscode.Uri | undefined): Promise<void> {
    const [choose, show, create] = [vscode.l10n.t("Choose Interpreter"), vscode.l10n.t("Show Log"), vscode.l10n.t("Create Environment")];
    const chosen = await showError(text, choose, show, create);
    if (chosen === choose) {
        await chooseInterpreter(scope);
    } else if (chosen === show) {
        log.show();
    } else if (chosen === create) {
        await createEnvironment(python, scope);
    }
}

/** Returns a known reason for the failure; otherwise pip's line that begins with "error:", else pip's last line. */
function reason(output: string): string {
    if (MANAGED.test(output)) {
        return vscode.l10n.t("the operating system manages its packages (PEP 668). Choose or create an environment.");
    }
    const lines = output.split("\n").map((line) => line.trim());
    const error = lines.find((line) => /^error: /i.test(line));
    return error?.replace(/^error: /i, "") ?? lastLine(output);
}

async function packagedWheel(extensionPath: string): Promise<string> {
    const folder = join(extensionPath, "wheel");
    const name = (await readdir(folder)).find((file) => file.endsWith(".whl"));
    if (name === undefined) {
        throw new Error(vscode.l10n.t("{0} is not included in this build of the extension. Build it with \"npm run package\".", folder));
    }
    return join(folder, name);
}

/** Runs Python until it exits. */
export function run(python: readonly string[], args: string[], limits: ExecFileOptions): Promise<Ended> {
    const [executable = "", ...flags] = python;
    return new Promise((done) => {
        execFile(executable, [...flags, ...args], { ...limits, encoding: "utf8" }, (error, stdout, stderr) => {
            const output = [stdout, stderr, error === null || error.code === 1 ? "" : error.message];
            done({ ok: error === null, output: output.join("\n") });
        });
    });
}

/** The last line, without spaces around it. */
export function lastLine(output: string): string {
    return output.trim().split("\n").at(-1) ?? "";
}
