/**
 * Makes sure that dynamo-dap is in the environment that is to be debugged, and offers to install it: from the wheel that
 * travels in the extension, so that the two fit, and never by a name that anybody could register.
 */

import { execFile, type ExecFileOptions } from "node:child_process";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import * as vscode from "vscode";

import { unlessGivenUp } from "../session/slow-start.js";
import { findInterpreter } from "./interpreter.js";

const PACKAGE = "dynamo-dap";
const CHECK_MILLISECONDS = 20_000;

interface Ended {
    ok: boolean;
    output: string;
}

/**
 * Whether debugging can start with the command `python`. When the package is missing, the user is asked, and it may be
 * installed.
 */
export async function requireDynamoDap(extensionPath: string, python: readonly string[]): Promise<boolean> {
    const check = await unlessGivenUp(`looking for ${PACKAGE} in the environment of ${python.join(" ")}`, (signal) =>
        run(python, ["-c", "import dynamo_dap, msgspec, bytecode"], { timeout: CHECK_MILLISECONDS, signal }),
    );
    if (check === undefined || check.ok) {
        return check !== undefined;
    }
    if (!check.output.includes("No module named")) {
        throw new Error(`The Python interpreter ${python.join(" ")} cannot be used: ${lastLine(check.output)}`);
    }
    const install = "Install";
    const choice = await vscode.window.showErrorMessage(
        `Debugging torch.compile needs the package ${PACKAGE} in the environment of ${python.join(" ")}.`,
        { modal: true, detail: lastLine(check.output) },
        install,
    );
    return choice === install && (await installInto(extensionPath, python));
}

/** The command "Install dynamo-dap into the Selected Environment". */
export function registerInstallation(extensionPath: string): vscode.Disposable {
    return vscode.commands.registerCommand("dynamo.installPackage", async () => {
        const python = await findInterpreter(vscode.workspace.workspaceFolders?.[0]?.uri);
        if (await installInto(extensionPath, [python])) {
            void vscode.window.showInformationMessage(`${PACKAGE} is installed in the environment of ${python}.`);
        }
    });
}

async function installInto(extensionPath: string, python: readonly string[]): Promise<boolean> {
    const progress = { location: vscode.ProgressLocation.Notification, title: `Installing ${PACKAGE} …` };
    const wheel = await packagedWheel(extensionPath);
    const ended = await vscode.window.withProgress(progress, () =>
        run(python, ["-m", "pip", "install", "--disable-pip-version-check", wheel], {}),
    );
    if (!ended.ok) {
        void vscode.window.showErrorMessage(
            `${PACKAGE} could not be installed with ${python.join(" ")} -m pip install ${wheel}: ${lastLine(ended.output)}`,
        );
    }
    return ended.ok;
}

async function packagedWheel(extensionPath: string): Promise<string> {
    const folder = join(extensionPath, "wheel");
    const name = (await readdir(folder)).find((file) => file.endsWith(".whl"));
    if (name === undefined) {
        throw new Error(`There is no wheel in ${folder}: build the extension with "npm run package".`);
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
