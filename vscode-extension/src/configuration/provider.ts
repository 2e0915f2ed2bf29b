/** Completes and checks configurations on their way from launch.json (or from nothing) to the debug adapter. */

import { existsSync } from "node:fs";
import { isAbsolute } from "node:path";
import * as vscode from "vscode";

import { requireDynamoDap } from "../environment/installation.js";
import { findInterpreter } from "../environment/interpreter.js";
import { showError } from "../notifications.js";
import { followPythonFiles, frontDocument, withFrontFile } from "./front-document.js";
import { DEBUG_TYPE, type DynamoConfiguration } from "./options.js";
import { all, currentFile, savedFile } from "./ready-made.js";
import { problems, type ConfigurationSchemas } from "./validation.js";

class Resolver implements vscode.DebugConfigurationProvider {
    constructor(
        private readonly extensionPath: string,
        private readonly schemas: ConfigurationSchemas,
    ) {}

    async resolveDebugConfiguration(
        folder: vscode.WorkspaceFolder | undefined,
        configuration: DynamoConfiguration,
    ): Promise<DynamoConfiguration | undefined> {
        if (configuration.__adapter !== undefined) {
            return configuration;
        }
        const started = isEmpty(configuration) ? await withoutLaunchJson() : configuration;
        if (started?.request === "launch") {
            // The console opens, because its output is what the user reads when the program ends without a stop.
            const inConsole = started.console === undefined || started.console === "internalConsole";
            started.internalConsoleOptions ??= inConsole ? "openOnSessionStart" : "neverOpen";
            started.cwd ??= folder === undefined ? "${fileDirname}" : "${workspaceFolder}";
            return withFrontFile(started);
        }
        return started;
    }

    async resolveDebugConfigurationWithSubstitutedVariables(
        folder: vscode.WorkspaceFolder | undefined,
        configuration: DynamoConfiguration,
    ): Promise<DynamoConfiguration | undefined> {
        if (configuration.__adapter !== undefined) {
            return configuration;
        }
        // The result of "${command:…}" is a string, also for a port.
        if (typeof configuration.connect?.port === "string" && /^\d+$/.test(configuration.connect.port)) {
            configuration.connect.port = Number(configuration.connect.port);
        }
        const wrong = problems(configuration, this.schemas);
        // `missingFiles` relies on the types of the options.
        const found = wrong.length > 0 ? wrong : missingFiles(configuration);
        if (found.length > 0) {
            // VS Code shows the error in a dialog that offers to open launch.json.
            throw new Error(found.join(" "));
        }
        const python = [configuration.python ?? (await findInterpreter(folder?.uri))].flat();
        const usable = await requireDynamoDap(this.extensionPath, python, folder?.uri);
        return usable === undefined ? undefined : { ...configuration, __python: [...usable] };
    }
}

/** Provides the entries of "Select and Start Debugging" and of the list in the Run and Debug view. */
class ReadyMade implements vscode.DebugConfigurationProvider {
    provideDebugConfigurations(): vscode.DebugConfiguration[] {
        return all.map((configuration) => ({ ...configuration }));
    }
}

/** Registers the providers; `schemas` are those of package.json in `extensionPath`. */
export function registerConfigurations(extensionPath: string, schemas: ConfigurationSchemas): vscode.Disposable {
    return vscode.Disposable.from(
        followPythonFiles(),
        vscode.debug.registerDebugConfigurationProvider(DEBUG_TYPE, new Resolver(extensionPath, schemas)),
        vscode.debug.registerDebugConfigurationProvider(
            DEBUG_TYPE,
            new ReadyMade(),
            vscode.DebugConfigurationProviderTriggerKind.Dynamic,
        ),
        vscode.debug.registerDebugConfigurationProvider(
            DEBUG_TYPE,
            new ReadyMade(),
            vscode.DebugConfigurationProviderTriggerKind.Initial,
        ),
        vscode.commands.registerCommand("dynamo.askModule", () =>
            vscode.window.showInputBox({ prompt: vscode.l10n.t("Module to debug, as after python -m"), placeHolder: "package.module", ignoreFocusOut: true }),
        ),
        vscode.commands.registerCommand("dynamo.askPort", () =>
            vscode.window.showInputBox({ prompt: vscode.l10n.t("Port that the program gave to dynamo_dap.listen()"), placeHolder: "5678", ignoreFocusOut: true }),
        ),
    );
}

/** Whether a configuration is empty: F5 without launch.json passes such a one. */
function isEmpty(configuration: DynamoConfiguration): boolean {
    return !configuration.type && !configuration.request && !configuration.name;
}

async function withoutLaunchJson(): Promise<DynamoConfiguration | undefined> {
    const document = frontDocument();
    if (document?.languageId !== "python") {
        void showError(vscode.l10n.t("Open the Python file to debug, then start again."));
        return undefined;
    }
    const program = await savedFile(document.uri);
    return program === undefined ? undefined : { ...currentFile, program: program.fsPath };
}

function missingFiles(configuration: DynamoConfiguration): string[] {
    const { program, cwd } = configuration;
    const missing: string[] = [];
    if (program !== undefined && isAbsolute(program) && !existsSync(program)) {
        missing.push(vscode.l10n.t("The program {0} does not exist.", program));
    }
    if (cwd !== undefined && !existsSync(cwd)) {
        missing.push(vscode.l10n.t("The working directory {0} does not exist.", cwd));
    }
    return missing;
}
