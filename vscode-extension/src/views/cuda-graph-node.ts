/** Nodes of the view "Compiles" for events of CUDA graphs. */

import * as vscode from "vscode";

import type { CudaGraph } from "../session/requests.js";
import { linkTo } from "./links.js";
import { makeNode, type TreeNode } from "./pull-tree.js";

/** Returns a node that links to the line that caused the event. */
export function cudaGraphNode(id: string, met: CudaGraph): TreeNode {
    const times = met.times === undefined ? "" : ` (${met.times} times)`;
    const node = makeNode(id, vscode.l10n.t("CUDA graph {0}{1}", met.outcome, times), "vm-active", { description: met.text ?? "" });
    linkTo(node.item, met.place);
    return node;
}
