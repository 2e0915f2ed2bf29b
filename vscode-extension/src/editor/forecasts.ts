/** "Forecast Recompiles": runs `dynamo-dap forecast` on the session's program, else on the file in the editor. */

import * as vscode from "vscode";

import { showError } from "../notifications.js";
import type { Compiles } from "../session/compiles.js";
import { errorText } from "../session/stopped-frame.js";
import { ReadOnlyTexts } from "../views/read-only-texts.js";
import { programInEditor, programOf } from "./programs.js";
import { WatchedRuns } from "./watched-runs.js";

/** The shown part of the output of `forecast --json`. */
interface Forecast {
    text: string;
}

/** Registers `dynamo.forecast`. */
export function registerForecasts(compiles: Compiles): vscode.Disposable {
    const runs = new WatchedRuns(vscode.l10n.t("torch.compile: Forecast"));
    const texts = new ReadOnlyTexts("dynamo-forecast");
    const forecast = async (): Promise<void> => {
        const session = compiles.activeSession;
        const program = (session === undefined ? undefined : programOf(session)) ?? (await programInEditor());
        if (program === undefined) {
            return;
        }
        const answer = await runs.answer<Forecast>(vscode.l10n.t("Running {0} to see which sizes compile next", program.name), program, ["forecast", "--json"]);
        if (answer !== undefined) {
            // The name must not end in ".py", which would select Python as the language.
            await texts.show(vscode.l10n.t("{0} forecast", program.name), answer.text);
        }
    };
    return vscode.Disposable.from(
        runs,
        texts,
        vscode.commands.registerCommand("dynamo.forecast", async () => {
            try {
                await forecast();
            } catch (problem) {
                void showError(errorText(problem));
            }
        }),
    );
}
