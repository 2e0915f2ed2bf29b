/**
 * Listings of generated code: the buttons that switch between statements and instructions, the commands that patch an
 * instruction, and the expressions of debug hovers: a name for its value, and a remark for the full purpose of the
 * line.
 */

import type { DebugProtocol } from "@vscode/debugprotocol";
import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { showError, showInformation } from "../notifications.js";
import { requestListing, requestPatch, requestUnpatch, type ListingArguments } from "../session/requests.js";

/** The documents of listings, such as `record #0.py` and `record #0.dynamo`. */
const LISTINGS: vscode.DocumentSelector = { scheme: "debug", pattern: "**/*#*.{py,dynamo}" };
/** The beginning of a line's remark, which says what the code is for. */
const REMARK = / {2}# |[╶┌│]/;
const PATH = /[\p{L}_$][\p{L}\p{N}_.]*/gu;

export function registerListings(): vscode.Disposable {
    const show = (form: ListingArguments["form"]) => async (): Promise<void> => {
        const session = vscode.debug.activeDebugSession;
        if (session?.type === DEBUG_TYPE) {
            await requestListing(session, form);
        }
    };
    return vscode.Disposable.from(
        vscode.commands.registerCommand("dynamo.showInstructions", show("instructions")),
        vscode.commands.registerCommand("dynamo.showStatements", show("statements")),
        vscode.commands.registerCommand("dynamo.patchInstruction", () => telling(patchInstruction)),
        vscode.commands.registerCommand("dynamo.unpatch", () => telling(takePatchesBack)),
        vscode.languages.registerEvaluatableExpressionProvider(LISTINGS, { provideEvaluatableExpression }),
    );
}

/** Asks the user for a replacement of the selected frame's current instruction, and patches it. */
async function patchInstruction(): Promise<string | undefined> {
    const item = vscode.debug.activeStackItem;
    if (!(item instanceof vscode.DebugStackFrame) || item.session.type !== DEBUG_TYPE) {
        throw new Error(vscode.l10n.t("select a frame of generated code in the call stack."));
    }
    const { session, threadId, frameId } = item;
    const { stackFrames } = (await session.customRequest("stackTrace", { threadId })) as DebugProtocol.StackTraceResponse["body"];
    const instructionReference = stackFrames.find((frame) => frame.id === frameId)?.instructionPointerReference;
    if (instructionReference === undefined) {
        throw new Error(vscode.l10n.t("this frame runs no code that Dynamo generated."));
    }
    const disassembled = (await session.customRequest("disassemble", {
        memoryReference: instructionReference,
        instructionCount: 1,
    })) as NonNullable<DebugProtocol.DisassembleResponse["body"]>;
    const instruction = await vscode.window.showInputBox({
        title: vscode.l10n.t("Patch This Instruction"),
        prompt: vscode.l10n.t("Instruction for later calls. Separate several with ';'. 'NOP' does nothing, 'swap' exchanges it with the next one. '12: NOP' patches instruction 12 of the listing."),
        value: disassembled.instructions[0]?.instruction.replace(/ {3}\[patched, .*$/u, "") ?? "",
        ignoreFocusOut: true,
    });
    if (!instruction) {
        return undefined;
    }
    const body = await requestPatch(session, { instructionReference, instruction });
    return vscode.l10n.t("Patched: the next call runs {0} instead of {1}.", body.instruction, body.was);
}

async function takePatchesBack(): Promise<string | undefined> {
    const session = vscode.debug.activeDebugSession;
    if (session?.type !== DEBUG_TYPE) {
        throw new Error(vscode.l10n.t("no program is being debugged."));
    }
    const { count } = await requestUnpatch(session);
    return vscode.l10n.t("Reverted patched instructions: {0}.", count);
}

async function telling(work: () => Promise<string | undefined>): Promise<void> {
    try {
        const done = await work();
        if (done !== undefined) {
            void showInformation(done);
        }
    } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        void showError(vscode.l10n.t("Generated code cannot be patched: {0}", reason));
    }
}

function provideEvaluatableExpression(document: vscode.TextDocument, position: vscode.Position): vscode.EvaluatableExpression | undefined {
    const { text, range } = document.lineAt(position.line);
    const remark = REMARK.exec(text)?.index;
    if (remark !== undefined && position.character >= remark) {
        return new vscode.EvaluatableExpression(range.with(range.start.translate(0, remark)), `__listing__[${position.line + 1}]`);
    }
    for (const match of text.matchAll(PATH)) {
        const end = match.index + match[0].length;
        if (match.index <= position.character && position.character <= end) {
            // Only the part of an attribute path up to the pointer: `state` or `state.last`.
            const rest = text.slice(position.character, end).indexOf(".");
            const stop = rest === -1 ? end : position.character + rest;
            const path = text.slice(match.index, stop);
            return new vscode.EvaluatableExpression(new vscode.Range(position.line, match.index, position.line, stop), path);
        }
    }
    return undefined;
}
