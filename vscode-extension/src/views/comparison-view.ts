/** The view "Compare": the lines of the newest call whose compiled result differs, each with its difference. */

import * as vscode from "vscode";

import type { Compiles } from "../session/compiles.js";
import { requestComparison, type ComparedLine, type ComparisonBody, type Deviation } from "../session/requests.js";
import { outcomeOf } from "../webview/compared-lines.js";
import { openComparison, verdictOf } from "./comparison-page.js";
import { linkTo } from "./links.js";
import { makeNode, PullTree, type TreeNode } from "./pull-tree.js";

const ICONS = {
    differs: new vscode.ThemeIcon("error", new vscode.ThemeColor("testing.iconFailed")),
    same: new vscode.ThemeIcon("pass", new vscode.ThemeColor("testing.iconPassed")),
    unknown: new vscode.ThemeIcon("circle-outline"),
};

/** Makes the view: the verdict, then the lines in the order in which the call runs them. */
export function createComparisonView(extension: vscode.Uri, compiles: Compiles): vscode.Disposable {
    let last: ComparisonBody | undefined;
    const open = (): void => {
        if (last !== undefined) {
            openComparison(extension, last);
        }
    };
    const tree = new PullTree("dynamo.comparison", compiles, async (view) => {
        view.description = "";
        last = undefined;
        const session = compiles.activeSession;
        if (session === undefined) {
            return [];
        }
        const answer = await requestComparison(session);
        last = answer;
        void vscode.commands.executeCommand("setContext", "dynamo.hasComparison", true);
        view.description = vscode.l10n.t("call {0} of {1}", answer.call, answer.function);
        const found = makeNode("verdict", verdictOf(answer), "law");
        return [found, ...(answer.lines ?? []).map(lineNode)];
    });
    return vscode.Disposable.from(tree, vscode.commands.registerCommand("dynamo.openComparison", open));
}

function lineNode(line: ComparedLine, index: number): TreeNode {
    const compiled = line.compiled === undefined ? "" : numbers("compiled", line.compiled);
    const dynamo = line.dynamo === undefined || line.dynamo.largest === 0 ? "" : numbers("graph", line.dynamo);
    const description = [dynamo, compiled].filter((part) => part).join("  ");
    const tooltip = [line.text, line.operations.join(", "), description].filter((part) => part).join("\n");
    const node = makeNode(`line ${index}`, line.text, "circle-outline", { description, tooltip });
    node.item.iconPath = ICONS[outcomeOf(line)];
    linkTo(node.item, line);
    return node;
}

function numbers(name: string, deviation: Deviation): string {
    return `${name} ±${deviation.largest === undefined ? "Inf" : Number(deviation.largest.toPrecision(3))}`;
}
