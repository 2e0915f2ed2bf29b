/** "Forecast Recompiles": `dynamo-dap forecast` on the program of the session, or on the file in the editor. */

import * as vscode from "vscode";

import { showError } from "../notifications.js";
import type { Compiles } from "../session/compiles.js";
import { errorText } from "../session/stopped-frame.js";
import { ReadOnlyTexts } from "../views/read-only-texts.js";
import { programInEditor, programOf } from "./programs.js";
import { WatchedRuns } from "./watched-runs.js";

/** What `forecast --json` prints, as far as it is shown. */
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
            // A name that ends in ".py" would be shown as Python.
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
