/**
 * The commands "Save This Call", at a stop in a compiled function, and "Debug a Saved Call…". Like `dynamo-dap replay`,
 * the latter shows the code of the saved call and asks for consent before it runs that code.
 */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { COMMAND, findInterpreter } from "../environment/interpreter.js";
import { showError, showInformation, showWarning } from "../notifications.js";
import { requestRecordCall } from "../session/requests.js";
import { errorText } from "../session/stopped-frame.js";
import { ReadOnlyTexts } from "../views/read-only-texts.js";

/** The module that replays a saved call; its argument is the folder. */
const REPLAYING = "dynamo_dap.debuggee.saved_calls.repeating_run";
const NOT_AGREED = 1;
const DEBUG = vscode.l10n.t("Debug It");

/** Registers `dynamo.recordCall` and `dynamo.replayCall`. */
export function registerSavedCalls(): vscode.Disposable {
    const texts = new ReadOnlyTexts("dynamo-saved-call");
    return vscode.Disposable.from(
        texts,
        vscode.commands.registerCommand("dynamo.recordCall", () => reporting(() => recordCall(texts))),
        vscode.commands.registerCommand("dynamo.replayCall", (folder?: string) => reporting(() => replayCall(texts, folder))),
    );
}

async function reporting(act: () => Promise<void>): Promise<void> {
    try {
        await act();
    } catch (problem) {
        void showError(errorText(problem));
    }
}

async function recordCall(texts: ReadOnlyTexts): Promise<void> {
    const stopped = vscode.debug.activeStackItem;
    if (stopped?.session.type !== DEBUG_TYPE) {
        throw new Error(vscode.l10n.t("Stop in a compiled function first, then save its call."));
    }
    const saved = await requestRecordCall(stopped.session, { threadId: stopped.threadId });
    const lost = (saved.lost ?? []).map((each) => `${each.path} (${each.text})`);
    const missing = lost.length === 0 ? "" : vscode.l10n.t("Not saved: {0}.", lost.join(", "));
    const notes = (saved.notes ?? []).map((note) => `${note}.`);
    const where = vscode.l10n.t("The call of {0} is saved in {1}.", saved.function, saved.folder);
    const text = [where, missing, ...notes].filter((part) => part).join(" ");
    if ((await showInformation(text, DEBUG)) === DEBUG) {
        await replayCall(texts, saved.folder);
    }
}

async function replayCall(texts: ReadOnlyTexts, given: string | undefined): Promise<void> {
    const folder = given ?? (await askedFolder());
    if (folder === undefined) {
        return;
    }
    const python = await findInterpreter(vscode.workspace.workspaceFolders?.[0]?.uri);
    const shown = await replay(python, folder, "--show");
    const refused = refusedIn(shown.output);
    if (!shown.isAgreed && !(await isWanted(texts, folder, shown.output, refused))) {
        return;
    }
    const agreed = [...contentOf(shown.output), ...refused.flatMap((name) => ["--allow", name])];
    const first = /^(.+):(\d+)$/.exec((await replay(python, folder, "--agree", ...agreed)).output.trim());
    if (first !== null) {
        const place = new vscode.Location(vscode.Uri.file(first[1] ?? ""), new vscode.Position(Number(first[2]) - 1, 0));
        vscode.debug.addBreakpoints([new vscode.SourceBreakpoint(place)]);
    }
    const configuration = { type: DEBUG_TYPE, request: "launch", name: vscode.l10n.t("Saved Call"), module: REPLAYING, args: [folder] };
    await vscode.debug.startDebugging(vscode.workspace.workspaceFolders?.[0], configuration);
}

async function isWanted(texts: ReadOnlyTexts, folder: string, shown: string, refused: string[]): Promise<boolean> {
    // Not an untitled document: VS Code would ask to save it before it debugs anything.
    await texts.show("code of the call.py", shown);
    const text = vscode.l10n.t("To debug the call in {0}, the code shown here is run. Continue?", folder);
    if (refused.length === 0) {
        const run = vscode.l10n.t("Run This Code");
        return (await showWarning(text, { modal: true }, run)) === run;
    }
    const detail = vscode.l10n.t("It uses names that are blocked in saved calls: {0}", refused.join(", "));
    const allow = vscode.l10n.t("Allow These Names and Run This Code");
    return (await showWarning(text, { modal: true, detail }, allow)) === allow;
}

async function askedFolder(): Promise<string | undefined> {
    const options = { canSelectFiles: false, canSelectFolders: true, openLabel: vscode.l10n.t("Debug"), title: vscode.l10n.t("The folder of a saved call") };
    return (await vscode.window.showOpenDialog(options))?.[0]?.fsPath;
}

interface Answered {
    output: string;
    isAgreed: boolean;
}

/** The names outside the allow list. The folder cannot fake this line: all lines of its code are numbered. */
function refusedIn(shown: string): string[] {
    return [...shown.matchAll(/^Refused unless you allow it: (.+)$/gm)].map((found) => found[1] ?? "");
}

/** Returns the option that limits consent to the content that was shown, since the folder may change meanwhile. */
function contentOf(shown: string): string[] {
    const digest = /^Content: ([0-9a-f]{64})$/m.exec(shown.slice(shown.lastIndexOf("\nContent: ") + 1))?.[1];
    if (digest === undefined) {
        throw new Error(vscode.l10n.t("The installed dynamo-dap is too old to debug saved calls safely. Update it."));
    }
    return ["--content", digest];
}

/** Runs `dynamo-dap replay`; rejects with its message if something is wrong with the folder. */
async function replay(python: string, folder: string, ...options: string[]): Promise<Answered> {
    try {
        const { stdout } = await promisify(execFile)(python, ["-c", COMMAND, "replay", ...options, folder], { maxBuffer: 2 ** 28 });
        return { output: stdout, isAgreed: true };
    } catch (problem) {
        const { code, stdout, stderr } = problem as { code?: number; stdout?: string; stderr?: string };
        if (code === NOT_AGREED && stdout !== undefined) {
            return { output: stdout, isAgreed: false };
        }
        const output = stderr?.trim() ?? "";
        throw new Error(output === "" ? errorText(problem) : output, { cause: problem });
    }
}
