/** Starts the debug adapter: the Python server `python -m dynamo_dap`, speaking DAP over stdin and stdout. */

import * as vscode from "vscode";

import { DEBUG_TYPE, type DynamoConfiguration } from "../configuration/options.js";
import { offeredFilters } from "./offered-filters.js";
import { registerRelativeLinks } from "./relative-links.js";

class AdapterFactory implements vscode.DebugAdapterDescriptorFactory {
    constructor(
        private readonly extensionPath: string,
        private readonly knownFilters: readonly string[],
    ) {}

    async createDebugAdapterDescriptor(session: vscode.DebugSession): Promise<vscode.DebugAdapterDescriptor> {
        const { __adapter: adapter, __python: [python, ...flags] = [] } = session.configuration as DynamoConfiguration;
        if (adapter !== undefined) {
            return new vscode.DebugAdapterNamedPipeServer(adapter);
        }
        if (python === undefined) {
            throw new Error(vscode.l10n.t("The Python interpreter of the debugger is unknown."));
        }
        const settings = vscode.workspace.getConfiguration("dynamo", session.workspaceFolder ?? null);
        const chosen = settings.get<string[]>("exceptionFilters", []);
        const filters = await offeredFilters(chosen, this.knownFilters, session.configuration);
        const offered = ["--filters", filters.join(",")];
        // With "-m", Python puts the working directory first on sys.path. In the user's folder, files could shadow
        // modules.
        return new vscode.DebugAdapterExecutable(python, [...flags, "-m", "dynamo_dap", ...offered], { cwd: this.extensionPath });
    }
}

/** Registers the factory for the debug type. `knownFilters` are the names that `dynamo.exceptionFilters` allows. */
export function registerAdapter(extensionPath: string, knownFilters: readonly string[]): vscode.Disposable {
    return vscode.Disposable.from(
        vscode.debug.registerDebugAdapterDescriptorFactory(DEBUG_TYPE, new AdapterFactory(extensionPath, knownFilters)),
        registerRelativeLinks(),
    );
}
