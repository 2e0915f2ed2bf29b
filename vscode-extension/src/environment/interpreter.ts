/** Which Python runs the program: the Python extension's choice, else the setting, else what is on the PATH. */

import { PythonExtension } from "@vscode/python-extension";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import * as vscode from "vscode";

/**
 * What Python runs, by `-c`, for `dynamo-dap WORDS`. It puts the program's folder first on its path: the user's files must
 * not shadow modules there.
 */
export const COMMAND = "import sys; del sys.path[0]; from dynamo_dap.command_line import main; sys.exit(main())";

const EXECUTABLES = process.platform === "win32" ? ["python.exe"] : ["python3", "python"];

/** Returns the path of the interpreter for programs in `scope`. Throws an error for the user when there is none. */
export async function findInterpreter(scope: vscode.Uri | undefined): Promise<string> {
    const found = (await fromPythonExtension(scope)) ?? fromSetting(scope) ?? fromPath();
    if (found === undefined) {
        throw new Error("No Python was found. Choose one in the Python extension, or in the setting dynamo.python.");
    }
    return found;
}

async function fromPythonExtension(scope: vscode.Uri | undefined): Promise<string | undefined> {
    if (vscode.extensions.getExtension("ms-python.python") === undefined) {
        return undefined;
    }
    const { environments } = await PythonExtension.api();
    const active = environments.getActiveEnvironmentPath(scope);
    const environment = await environments.resolveEnvironment(active);
    return environment?.executable.uri?.fsPath;
}

function fromSetting(scope: vscode.Uri | undefined): string | undefined {
    const setting = vscode.workspace.getConfiguration("dynamo", scope ?? null).get<string>("python", "").trim();
    return setting === "" ? undefined : setting;
}

function fromPath(): string | undefined {
    const folders = (process.env.PATH ?? "").split(delimiter);
    return EXECUTABLES.flatMap((name) => folders.map((folder) => join(folder, name))).find((path) => existsSync(path));
}
