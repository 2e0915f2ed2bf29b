/** The view "Compare" of the newest call that differs when compiled: each of its lines, and by how much. */

import * as vscode from "vscode";

import type { Compiles } from "../session/compiles.js";
import { requestComparison, type ComparedLine, type Deviation } from "../session/requests.js";
import { linkTo } from "./links.js";
import { makeNode, PullTree, type TreeNode } from "./pull-tree.js";

const ICONS = {
    differs: new vscode.ThemeIcon("error", new vscode.ThemeColor("testing.iconFailed")),
    same: new vscode.ThemeIcon("pass", new vscode.ThemeColor("testing.iconPassed")),
    unknown: new vscode.ThemeIcon("circle-outline"),
};

/** The lines in the order in which the call runs them; the message says what was found. */
export function createComparisonView(compiles: Compiles): PullTree {
    return new PullTree("dynamo.comparison", compiles, async (view) => {
        view.description = "";
        const session = compiles.activeSession;
        if (session === undefined) {
            return [];
        }
        const answer = await requestComparison(session);
        view.description = vscode.l10n.t("call {0} of {1}", answer.call, answer.function);
        const found = makeNode("verdict", answer.same ? vscode.l10n.t("Nothing differs") : vscode.l10n.t("Cause: {0}", answer.verdict), "law");
        return [found, ...(answer.lines ?? []).map(lineNode)];
    });
}

function lineNode(line: ComparedLine, index: number): TreeNode {
    const compiled = line.compiled === undefined ? "" : numbers("compiled", line.compiled);
    const dynamo = line.dynamo === undefined || line.dynamo.largest === 0 ? "" : numbers("graph", line.dynamo);
    const description = [dynamo, compiled].filter((part) => part).join("  ");
    const tooltip = [line.text, line.operations.join(", "), description].filter((part) => part).join("\n");
    const node = makeNode(`line ${index}`, line.text, "circle-outline", { description, tooltip });
    const known = [line.compiled, line.dynamo].filter((each) => each !== undefined);
    node.item.iconPath = known.length === 0 ? ICONS.unknown : known.every((each) => each.same) ? ICONS.same : ICONS.differs;
    linkTo(node.item, line);
    return node;
}

function numbers(name: string, deviation: Deviation): string {
    return `${name} ±${deviation.largest === undefined ? "Inf" : Number(deviation.largest.toPrecision(3))}`;
}
