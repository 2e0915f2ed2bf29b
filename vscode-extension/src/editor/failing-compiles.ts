/**
 * "Bisect Compiler Stages…" and "Minify Failing Graph…": run `dynamo-dap bisect` and `minify` on the file in the
 * editor. When the backend fails in a debug session, both are offered for that session's program.
 */

import { basename, dirname } from "node:path";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { showError, showInformation, showWarning } from "../notifications.js";
import { errorText } from "../session/stopped-frame.js";
import { onBackendFailure } from "./failed-backends.js";
import { programInEditor, type Program } from "./programs.js";
import { WatchedRuns } from "./watched-runs.js";

const [BISECT, MINIFY, DEBUG, KEEP, RUNS] = [vscode.l10n.t("Bisect Stages"), vscode.l10n.t("Minify Graph"), vscode.l10n.t("Debug It"), vscode.l10n.t("Keep in launch.json"), vscode.l10n.t("Show the Runs")];
/** The maximum number of links to lines. */
const MOST_PLACES = 2;

/** The output of `bisect --json`; null if every stage is right. Version 0.2.0 has `thing` instead of `item`. */
interface Verdict extends Partial<Record<"item" | "thing", { places?: { path: string; line: number }[] } | null>> {
    text: string;
}

const placesOf = ({ item, thing }: Verdict): { path: string; line: number }[] => ((item ?? thing)?.places ?? []).slice(0, MOST_PLACES);

/** The output of `minify --json`. */
interface Minified {
    path: string;
    nodes: number;
    before: number;
    error: string;
}

class FailingCompiles implements vscode.Disposable {
    private readonly runs = new WatchedRuns(vscode.l10n.t("torch.compile: Bisect and Minify"));
    private readonly registrations: vscode.Disposable[] = [
        vscode.commands.registerCommand("dynamo.bisect", () => reporting(() => this.bisect(programInEditor()))),
        vscode.commands.registerCommand("dynamo.minify", () => reporting(() => this.minify(programInEditor()))),
        onBackendFailure((program) => void reporting(() => this.offer(program))),
    ];

    dispose(): void {
        vscode.Disposable.from(...this.registrations).dispose();
        this.runs.dispose();
    }

    /** Offers both commands after a backend failure in a session. */
    private async offer(program: Program): Promise<void> {
        const text = vscode.l10n.t("The backend failed to compile {0}.", program.name);
        const chosen = await showWarning(text, BISECT, MINIFY);
        if (chosen === BISECT) {
            await this.bisect(Promise.resolve(program), "exit");
        } else if (chosen === MINIFY) {
            await this.minify(Promise.resolve(program), false);
        }
    }

    private async bisect(finding: Promise<Program | undefined>, given?: string): Promise<void> {
        const program = await finding;
        const check = program === undefined ? undefined : (given ?? (await askedCheck()));
        if (program === undefined || check === undefined) {
            return;
        }
        const verdict = await this.runs.answer<Verdict | null>(vscode.l10n.t("Bisecting the compiler stages of {0}", program.name), program, ["bisect", "--json", "--check", check]);
        if (verdict === undefined) {
            void showInformation(vscode.l10n.t("Cancelled."));
            return;
        }
        if (verdict === null) {
            void showInformation(vscode.l10n.t("Every compiler stage of {0} passes the check '{1}'. Nothing else was compared.", program.name, check));
            return;
        }
        this.runs.note(verdict.text);
        const lines = verdict.text.trim().split("\n").map((line) => line.trim());
        const places = placesOf(verdict).map(({ path, line }) => ({ title: vscode.l10n.t("Go to {0}:{1}", basename(path), line), path, line }));
        const summary = lines.filter((line) => !line.startsWith("at ")).join(", ");
        const chosen = await showWarning(summary, ...places, { title: RUNS, path: "", line: 0 });
        if (chosen?.title === RUNS) {
            this.runs.show();
        } else if (chosen !== undefined) {
            const selection = new vscode.Range(chosen.line - 1, 0, chosen.line - 1, 0);
            await vscode.window.showTextDocument(vscode.Uri.file(chosen.path), { selection });
        }
    }

    private async minify(finding: Promise<Program | undefined>, given?: boolean): Promise<void> {
        const program = await finding;
        const looksForAccuracy = program === undefined ? undefined : (given ?? (await askedAccuracy()));
        if (program === undefined || looksForAccuracy === undefined) {
            return;
        }
        const words = ["minify", "--json", ...(looksForAccuracy ? ["--accuracy"] : [])];
        const minified = await this.runs.answer<Minified>(vscode.l10n.t("Minifying {0}", program.name), program, words);
        if (minified === undefined) {
            void showInformation(vscode.l10n.t("Cancelled."));
            return;
        }
        const { path, nodes, before, error } = minified;
        await vscode.window.showTextDocument(vscode.Uri.file(path), { preview: false });
        // The minified program reads its tensors from its own folder.
        const configuration = { name: vscode.l10n.t("Minified: {0}", program.name), type: DEBUG_TYPE, request: "launch", program: path, cwd: dirname(path) };
        const fails = error === "" ? "" : ` ${vscode.l10n.t("It fails with: {0}", error)}`;
        const text = vscode.l10n.t("Minimized the graph from {0} nodes to {1}.", before, nodes) + fails;
        let chosen = await showInformation(text, DEBUG, ...(program.folder === undefined ? [] : [KEEP]));
        if (chosen === KEEP) {
            const launch = vscode.workspace.getConfiguration("launch", program.folder ?? null);
            const others = launch.get<vscode.DebugConfiguration[]>("configurations", []).filter((each) => each.name !== configuration.name);
            await launch.update("configurations", [...others, configuration], vscode.ConfigurationTarget.WorkspaceFolder);
            chosen = await showInformation(vscode.l10n.t("{0} is in launch.json.", configuration.name), DEBUG);
        }
        if (chosen === DEBUG) {
            await vscode.debug.startDebugging(program.folder, configuration);
        }
    }
}

/** Registers `dynamo.bisect` and `dynamo.minify`, and offers them after backend failures. */
export function registerFailingCompiles(): FailingCompiles {
    return new FailingCompiles();
}

async function reporting(act: () => Promise<void>): Promise<void> {
    try {
        await act();
    } catch (problem) {
        void showError(errorText(problem));
    }
}

async function askedCheck(): Promise<string | undefined> {
    const checks = [
        { label: vscode.l10n.t("It ends without an error"), check: "exit" },
        { label: vscode.l10n.t("It prints the same as uncompiled"), check: "output" },
        { label: vscode.l10n.t("An expression is true at the end…"), check: undefined },
    ];
    const chosen = await vscode.window.showQuickPick(checks, { title: vscode.l10n.t("How can a correct run be recognized?") });
    if (chosen !== undefined && chosen.check === undefined) {
        return vscode.window.showInputBox({ prompt: vscode.l10n.t("An expression with names of the program"), placeHolder: "torch.allclose(result, expected)", ignoreFocusOut: true });
    }
    return chosen?.check;
}

async function askedAccuracy(): Promise<boolean | undefined> {
    const kinds = [
        { label: vscode.l10n.t("It fails to compile"), looksForAccuracy: false },
        { label: vscode.l10n.t("Its results are wrong when compiled"), looksForAccuracy: true },
    ];
    return (await vscode.window.showQuickPick(kinds, { title: vscode.l10n.t("What is wrong with the program?") }))?.looksForAccuracy;
}
