/** The compile whose stages were opened last: its documents, and which of their lines belong together. */

import * as vscode from "vscode";

import type { Compiles } from "./compiles.js";
import { requestStages, type ExploredBody, type StageBody } from "./requests.js";
import { StageLinks, type LinkedPart, type NumberedRange } from "./stage-links.js";

/** The counterparts of a line, and, if the line is in a stage, the part that contains it. */
export interface Found {
    part?: LinkedPart | undefined;
    counterparts: LinkedPart[];
}

export class ExploredStages {
    private session: vscode.DebugSession | undefined;
    private links: StageLinks | undefined;
    /** Address of a document -> its stage. */
    private readonly stages = new Map<string, string>();

    constructor(private readonly compiles: Compiles) {}

    /** Requests the stages of the selected compile, else of the newest explored compile. */
    async fetch(): Promise<ExploredBody> {
        const session = this.compiles.activeSession;
        if (session === undefined) {
            throw new Error(vscode.l10n.t("stages are kept while a program is debugged with \"explore\": true."));
        }
        const known = await requestStages(session, {});
        const selected = (await this.compiles.title()).split(" ")[0];
        const compile = known.find(({ id }) => id === selected) ?? known.at(-1);
        const [explored] = compile === undefined ? [] : await requestStages(session, { compileId: compile.id });
        if (explored === undefined) {
            throw new Error(vscode.l10n.t("nothing has been compiled yet."));
        }
        [this.session, this.links] = [session, new StageLinks(explored)];
        this.stages.clear();
        for (const stage of explored.stages) {
            this.stages.set(this.address(stage.source).toString(), stage.id);
        }
        return explored;
    }

    /** The URI from which VS Code reads a stage's document. */
    address(source: StageBody["source"] | undefined): vscode.Uri {
        if (source === undefined || this.session === undefined) {
            throw new Error(vscode.l10n.t("the session has ended."));
        }
        // VS Code takes the document's name and language from the path.
        return vscode.debug.asDebugSourceUri({ ...source, path: source.path ?? source.name ?? "stage" }, this.session);
    }

    stageOf(document: vscode.TextDocument): string | undefined {
        return this.stages.get(document.uri.toString());
    }

    /** The ranges of a document, each with the number of the user's line that it belongs to. */
    numbered(document: vscode.TextDocument): NumberedRange[] {
        const stage = this.stageOf(document);
        if (stage === undefined) {
            return document.uri.scheme === "file" ? (this.links?.numberedOf(document.uri.fsPath) ?? []) : [];
        }
        return this.links?.numberedIn(stage) ?? [];
    }

    /** The counterparts of a 1-based line; undefined when no stages are open. */
    find(document: vscode.TextDocument, line: number): Found | undefined {
        const stage = this.stageOf(document);
        if (this.links === undefined) {
            return undefined;
        }
        if (stage === undefined) {
            return { counterparts: document.uri.scheme === "file" ? this.links.ofLine(document.uri.fsPath, line) : [] };
        }
        const part = this.links.at(stage, line);
        return { part, counterparts: part === undefined ? [] : this.links.counterparts(part) };
    }
}
