/**
 * Checks that dynamo-dap is in the environment to debug, and offers to install it. The wheel in the extension is
 * installed, so that the versions match, and never a package of that name that anybody could register.
 */

import * as vscode from "vscode";

import { showError, showInformation } from "../notifications.js";
import { unlessGivenUp } from "../session/slow-start.js";
import { described, inspect } from "./candidates.js";
import { chooseInterpreter, findInterpreter } from "./interpreter.js";
import { installInto, lastLine, log, PACKAGE, run } from "./package-installer.js";

const CHECK_MILLISECONDS = 20_000;

/**
 * Returns the command of a Python that can debug: `python`, or the interpreter that the user chooses instead. If the
 * package is missing, offers to install it. Returns undefined if debugging cannot start.
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
    // Without torch in the environment, there is nothing to debug.
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
