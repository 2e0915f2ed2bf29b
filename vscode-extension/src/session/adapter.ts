/** Starts the debug adapter: the Python server `python -m dynamo_dap`, speaking DAP over stdin and stdout. */

import * as vscode from "vscode";

import { DEBUG_TYPE, type DynamoConfiguration } from "../configuration/options.js";
import { registerRelativeLinks } from "./relative-links.js";

class AdapterFactory implements vscode.DebugAdapterDescriptorFactory {
    constructor(
        private readonly extensionPath: string,
        private readonly knownFilters: readonly string[],
    ) {}

    createDebugAdapterDescriptor(session: vscode.DebugSession): vscode.DebugAdapterDescriptor {
        const { __adapter: adapter, __python: [python, ...flags] = [] } = session.configuration as DynamoConfiguration;
        if (adapter !== undefined) {
            return new vscode.DebugAdapterNamedPipeServer(adapter);
        }
        if (python === undefined) {
            throw new Error(vscode.l10n.t("The Python interpreter of the debugger is unknown."));
        }
        const settings = vscode.workspace.getConfiguration("dynamo", session.workspaceFolder ?? null);
        const filters = settings.get<string[]>("exceptionFilters", []).filter((name) => this.knownFilters.includes(name));
        const offered = ["--filters", filters.join(",")];
        // Python puts its working directory first on the path of "-m": the user's files must not shadow modules there.
        return new vscode.DebugAdapterExecutable(python, [...flags, "-m", "dynamo_dap", ...offered], { cwd: this.extensionPath });
    }
}

/** Registers the factory for the debug type. `knownFilters` are the names that the setting for exception filters takes. */
export function registerAdapter(extensionPath: string, knownFilters: readonly string[]): vscode.Disposable {
    return vscode.Disposable.from(
        vscode.debug.registerDebugAdapterDescriptorFactory(DEBUG_TYPE, new AdapterFactory(extensionPath, knownFilters)),
        registerRelativeLinks(),
    );
}
