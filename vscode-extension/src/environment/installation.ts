/**
 * Makes sure that dynamo-dap is in the environment to debug, and offers to install it: from the wheel that
 * travels in the extension, so that the two fit, and never by a name that anybody could register.
 */

import { execFile, type ExecFileOptions } from "node:child_process";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import * as vscode from "vscode";

import { showError, showInformation } from "../notifications.js";
import { unlessGivenUp } from "../session/slow-start.js";
import { described, inspect } from "./candidates.js";
import { chooseInterpreter, findInterpreter } from "./interpreter.js";

const PACKAGE = "dynamo-dap";
const CHECK_MILLISECONDS = 20_000;
const CREATE_ENVIRONMENT = "python.createEnvironment";

/** What pip wrote when it failed. */
const log = vscode.window.createOutputChannel(vscode.l10n.t("torch.compile installation"));

interface Ended {
    ok: boolean;
    output: string;
}

/**
 * Returns the command that can debug: `python`, or the interpreter that the user chooses instead. When the package is
 * missing, the user is asked, and it may be installed. Returns undefined when debugging cannot start.
 */
export async function requireDynamoDap(
    extensionPath: string,
    python: readonly string[],
    scope?: vscode.Uri,
): Promise<readonly string[] | undefined> {
    const check = await unlessGivenUp(vscode.l10n.t("looking for {0} in the environment {1}", PACKAGE, python.join(" ")), (signal) =>
        run(python, ["-c", "import dynamo_dap, msgspec, bytecode"], { timeout: CHECK_MILLISECONDS, signal }),
    );
    if (check === undefined) {
        return undefined;
    }
    if (check.ok) {
        void vscode.commands.executeCommand("setContext", "dynamo.isInstalled", true);
        return python;
    }
    if (!check.output.includes("No module named")) {
        throw new Error(vscode.l10n.t("The Python interpreter {0} cannot be used: {1}", python.join(" "), lastLine(check.output)));
    }
    return ask(extensionPath, python, lastLine(check.output), scope);
}

async function ask(
    extensionPath: string,
    python: readonly string[],
    problem: string,
    scope: vscode.Uri | undefined,
): Promise<readonly string[] | undefined> {
    const [install, choose] = [vscode.l10n.t("Install"), vscode.l10n.t("Choose Interpreter")];
    const known = await inspect(python[0] ?? "");
    // A package in an environment without torch would debug nothing.
    const lacksTorch = known !== undefined && known.torch === undefined;
    const choice = await showError(
        lacksTorch ? vscode.l10n.t("torch and {0} aren't installed in this environment ({1}).", PACKAGE, python.join(" ")) : vscode.l10n.t("{0} isn't installed in this environment ({1}).", PACKAGE, python.join(" ")),
        { modal: true, detail: known === undefined ? problem : described(known) },
        ...(lacksTorch ? [choose, install] : [install, choose]),
    );
    if (choice === choose) {
        const chosen = await chooseInterpreter(scope);
        return chosen === undefined ? undefined : requireDynamoDap(extensionPath, [chosen], scope);
    }
    return choice === install && (await installInto(extensionPath, python, scope)) ? python : undefined;
}

/** The command "Install dynamo-dap into the Selected Environment". */
export function registerInstallation(extensionPath: string): vscode.Disposable {
    return vscode.Disposable.from(
        log,
        vscode.commands.registerCommand("dynamo.installPackage", async () => {
            const scope = vscode.workspace.workspaceFolders?.[0]?.uri;
            const python = await findInterpreter(scope);
            if (await installInto(extensionPath, [python], scope)) {
                void showInformation(vscode.l10n.t("{0} is installed in the environment of {1}.", PACKAGE, python));
            }
        }),
        vscode.commands.registerCommand("dynamo.chooseInterpreter", () =>
            chooseInterpreter(vscode.workspace.workspaceFolders?.[0]?.uri),
        ),
    );
}

async function installInto(extensionPath: string, python: readonly string[], scope?: vscode.Uri): Promise<boolean> {
    const progress = { location: vscode.ProgressLocation.Notification, title: vscode.l10n.t("Installing {0} …", PACKAGE) };
    const wheel = await packagedWheel(extensionPath);
    const ended = await vscode.window.withProgress(progress, () =>
        run(python, ["-m", "pip", "install", "--disable-pip-version-check", wheel], {}),
    );
    if (!ended.ok) {
        log.appendLine(`${python.join(" ")} -m pip install ${wheel}\n${ended.output}`);
        void offerAfterFailure(vscode.l10n.t("Installing {0} into {1} failed: {2}", PACKAGE, python.join(" "), reason(ended.output)), scope);
    } else {
        void vscode.commands.executeCommand("setContext", "dynamo.isInstalled", true);
        // It did not start without the package.
        await vscode.commands.executeCommand("dynamo.restartLanguageServer");
    }
    return ended.ok;
}

async function offerAfterFailure(text: string, scope: vscode.Uri | undefined): Promise<void> {
    const [choose, show, create] = [vscode.l10n.t("Choose Interpreter"), vscode.l10n.t("Show Log"), vscode.l10n.t("Create Environment")];
    const canCreate = (await vscode.commands.getCommands(true)).includes(CREATE_ENVIRONMENT);
    const chosen = await showError(text, choose, show, ...(canCreate ? [create] : []));
    if (chosen === choose) {
        await chooseInterpreter(scope);
    } else if (chosen === show) {
        log.show();
    } else if (chosen === create) {
        await vscode.commands.executeCommand(CREATE_ENVIRONMENT);
    }
}

/** Pip's own line about what went wrong: after "error:", else the last one. */
function reason(output: string): string {
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

function run(python: readonly string[], args: string[], limits: ExecFileOptions): Promise<Ended> {
    const [executable = "", ...flags] = python;
    return new Promise((done) => {
        execFile(executable, [...flags, ...args], { ...limits, encoding: "utf8" }, (error, stdout, stderr) => {
            const output = [stdout, stderr, error === null || error.code === 1 ? "" : error.message];
            done({ ok: error === null, output: output.join("\n") });
        });
    });
}

function lastLine(output: string): string {
    return output.trim().split("\n").at(-1) ?? "";
}
