/** The entry point of the extension. It only connects VS Code to the servers: the debugger itself is in Python. */

import * as vscode from "vscode";

import { registerConfigurations } from "./configuration/provider.js";
import type { ConfigurationSchemas } from "./configuration/validation.js";
import { registerBreakpointDiagnosis } from "./editor/breakpoint-diagnosis.js";
import { registerFailedLogpoints } from "./editor/failed-logpoints.js";
import { registerCodeLenses } from "./editor/code-lens.js";
import { registerCommands } from "./editor/commands.js";
import { registerComparedRuns } from "./editor/compared-runs.js";
import { registerFailingCompiles } from "./editor/failing-compiles.js";
import { registerForecasts } from "./editor/forecasts.js";
import { registerInlineValues } from "./editor/inline-values.js";
import { registerAssistants } from "./environment/assistants.js";
import { registerDiagnosticLogs } from "./environment/diagnostic-logs.js";
import { registerInstallation } from "./environment/installation.js";
import { registerRecording } from "./editor/recording.js";
import { registerSavedCalls } from "./editor/saved-calls.js";
import { registerWalkthrough } from "./editor/walkthrough.js";
import { registerListings } from "./editor/listings.js";
import { registerStageColours } from "./editor/stage-colours.js";
import { registerStageMarks } from "./editor/stage-marks.js";
import { localizeWith } from "./localized.js";
import { registerLanguageServer } from "./language/language-server.js";
import { registerAdapter } from "./session/adapter.js";
import { registerRankTerminals } from "./session/rank-terminals.js";
import { AssistantSessions } from "./session/assistant-sessions.js";
import { Compiles } from "./session/compiles.js";
import { ExploredStages } from "./session/explored-stages.js";
import { LoggedValues } from "./session/logged.js";
import { registerSlowStart } from "./session/slow-start.js";
import { createCompilesView } from "./views/compiles-view.js";
import { createFindingsView } from "./views/findings-view.js";
import { createGraphView } from "./views/graph-view.js";
import { createComparisonView } from "./views/comparison-view.js";
import { createEntriesView } from "./views/entries-view.js";
import { createGuardsView } from "./views/guards-view.js";
import { registerLogPlot } from "./views/log-plot.js";
import { registerReadableGraph } from "./views/readable-graph.js";
import { registerReport } from "./views/report.js";
import { registerRunBack } from "./views/run-back.js";
import { registerStages } from "./views/stages.js";
import { registerTensorViewer } from "./views/tensor-viewer.js";
import { createTimelineView } from "./views/timeline-view.js";
import { registerWhatIf } from "./views/what-if.js";

/** The fields of package.json that the extension reads. */
interface Manifest {
    version: string;
    contributes: {
        debuggers: [{ configurationAttributes: ConfigurationSchemas }];
        configuration: { properties: { "dynamo.exceptionFilters": { items: { enum: string[] } } } };
    };
}

export function activate(context: vscode.ExtensionContext): void {
    localizeWith(vscode.l10n.t);
    const manifest = context.extension.packageJSON as Manifest;
    const compiles = new Compiles();
    const logged = new LoggedValues();
    const assistantSessions = new AssistantSessions(context.environmentVariableCollection);
    const stages = new ExploredStages(compiles);
    context.subscriptions.push(
        compiles,
        logged,
        registerConfigurations(context.extensionPath, manifest.contributes.debuggers[0].configurationAttributes),
        registerAdapter(context.extensionPath, manifest.contributes.configuration.properties["dynamo.exceptionFilters"].items.enum),
        registerSlowStart(),
        registerInstallation(context.extensionPath),
        registerCommands(),
        registerBreakpointDiagnosis(),
        registerFailedLogpoints(),
        registerDiagnosticLogs(manifest.version),
        registerRecording(context.globalStorageUri),
        registerWalkthrough(context),
        registerSavedCalls(),
        registerFailingCompiles(),
        registerComparedRuns(),
        registerForecasts(compiles),
        registerCodeLenses(),
        registerInlineValues(),
        registerListings(),
        registerLanguageServer(context.extensionPath),
        assistantSessions,
        registerAssistants(manifest.version, assistantSessions.environment),
        createFindingsView(compiles),
        createCompilesView(compiles),
        createGraphView(compiles),
        createGuardsView(compiles),
        createEntriesView(compiles),
        createComparisonView(context.extensionUri, compiles),
        registerReadableGraph(compiles),
        registerReport(),
        registerTensorViewer(context.extensionUri),
        registerLogPlot(context.extensionUri, logged),
        createTimelineView(),
        registerRunBack(),
        registerStages(stages),
        registerStageColours(stages),
        registerStageMarks(stages),
        registerRankTerminals(),
        registerWhatIf(),
        vscode.commands.registerCommand("dynamo.refresh", () => { compiles.refresh(); }),
    );
}
