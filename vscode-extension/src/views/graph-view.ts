/** The view "Graph" of the selected compile. */

import * as vscode from "vscode";

import type { Compiles } from "../session/compiles.js";
import type { GraphNode } from "../session/requests.js";
import { linkTo } from "./links.js";
import { makeNode, PullTree, type TreeNode } from "./pull-tree.js";

const OPERATION_ICONS: Record<string, string> = {
    placeholder: "symbol-parameter",
    get_attr: "symbol-property",
    output: "arrow-right",
    call_module: "symbol-module",
};

/** The nodes of the graph, in order; each links to the user's line. */
export function createGraphView(compiles: Compiles): PullTree {
    return new PullTree("dynamo.graph", compiles, async (view) => {
        const title = await compiles.title();
        const graph = await compiles.graph();
        view.description = graph?.isFinal === false ? vscode.l10n.t("{0}, so far", title) : title;
        return (graph?.nodes ?? []).map(operationNode);
    });
}

function operationNode(node: GraphNode): TreeNode {
    const made = makeNode(`node ${node.name}`, node.userName ?? node.name, OPERATION_ICONS[node.operation] ?? "symbol-operator", {
        description: [expressionOf(node), node.value].filter((part) => part).join("  "),
        tooltip: [node.operation, node.userName === undefined ? node.target : node.name, node.value].filter((part) => part).join("  "),
    });
    made.item.contextValue = "dynamoNode";
    linkTo(made.item, node.place);
    return made;
}

function expressionOf(node: GraphNode): string {
    const text = node.expression ?? node.target;
    return text === node.name ? "" : node.operation === "call_function" ? `= ${text}` : text;
}
