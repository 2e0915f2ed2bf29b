/**
 * Shows the values of local variables at the ends of the lines that set them: `z = x + y    z: f32[2] = [0.5, 1.0]`.
 * The provider is registered only while a dynamo session runs, to leave the inline values of other debuggers alone.
 */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { briefValue, isWorthShowing } from "./brief-value.js";
import { linesWithPresentValues } from "./mentioned-names.js";

const PYTHON_FILES: vscode.DocumentSelector = { language: "python" };

class InlineValues implements vscode.InlineValuesProvider {
    async provideInlineValues(
        document: vscode.TextDocument,
        viewPort: vscode.Range,
        context: vscode.InlineValueContext,
    ): Promise<vscode.InlineValue[]> {
        const session = vscode.debug.activeDebugSession;
        const wanted = vscode.workspace.getConfiguration().get<boolean>("dynamo.inlineValues", true);
        if (session?.type !== DEBUG_TYPE || !wanted) {
            return [];
        }
        const values = await localsOf(session, context.frameId);
        const lines = document.getText().split(/\r?\n/);
        const stopped = context.stoppedLocation.start.line;
        const shown: vscode.InlineValue[] = [];
        const presentAt = linesWithPresentValues(lines, stopped);
        for (let line = viewPort.start.line; line <= Math.min(stopped, viewPort.end.line); line += 1) {
            const text = lines[line] ?? "";
            const names = presentAt.get(line) ?? [];
            const parts = names.flatMap((name) => (values.has(name) ? [`${name}: ${values.get(name) ?? ""}`] : []));
            if (parts.length > 0) {
                const end = new vscode.Range(line, text.length, line, text.length);
                shown.push(new vscode.InlineValueText(end, parts.join("  ")));
            }
        }
        return shown;
    }
}

/** Keeps the provider registered while a dynamo session runs. */
export function registerInlineValues(): vscode.Disposable {
    const running = new Set<string>();
    let registration: vscode.Disposable | undefined;
    const update = (): void => {
        if (running.size === 0) {
            registration?.dispose();
            registration = undefined;
        } else {
            registration ??= vscode.languages.registerInlineValuesProvider(PYTHON_FILES, new InlineValues());
        }
    };
    return vscode.Disposable.from(
        vscode.debug.onDidStartDebugSession((session) => {
            if (session.type === DEBUG_TYPE) {
                running.add(session.id);
                update();
            }
        }),
        vscode.debug.onDidTerminateDebugSession((session) => {
            running.delete(session.id);
            update();
        }),
        new vscode.Disposable(() => {
            registration?.dispose();
        }),
    );
}

async function localsOf(session: vscode.DebugSession, frameId: number): Promise<Map<string, string>> {
    const { scopes } = (await session.customRequest("scopes", { frameId })) as DebugProtocol.ScopesResponse["body"];
    const locals = scopes.find((scope) => scope.presentationHint === "locals") ?? scopes[0];
    if (locals === undefined || locals.expensive) {
        return new Map();
    }
    const { variablesReference } = locals;
    const answer = (await session.customRequest("variables", {
        variablesReference,
        filter: "named",
    })) as DebugProtocol.VariablesResponse["body"];
    return new Map(
        answer.variables
            .filter(({ name, value, presentationHint }) => !presentationHint?.lazy && isWorthShowing(name, value))
            .map((variable) => [variable.name, briefValue(variable.value)]),
    );
}
