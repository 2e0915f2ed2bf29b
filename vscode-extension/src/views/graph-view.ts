/** The views "Graph" and "Guards" of the selected compile. */

import type { Compiles } from "../session/compiles.js";
import type { GraphNode, Guard } from "../session/requests.js";
import { linkTo } from "./links.js";
import { makeNode, PullTree, type TreeNode } from "./pull-tree.js";

const OPERATION_ICONS: Record<string, string> = {
    placeholder: "symbol-parameter",
    get_attr: "symbol-property",
    output: "arrow-right",
    call_module: "symbol-module",
};

const STILL_TRACING = "No graph yet: Dynamo is still tracing. “Open Graph of This Frame” shows what it has traced so far.";

/** The nodes of the graph, in order; each links to the user's line. */
export function createGraphView(compiles: Compiles): PullTree {
    return new PullTree("dynamo.graph", compiles, async () => {
        const graph = await compiles.graph();
        if (graph === undefined && (await compiles.isTracing())) {
            throw new Error(STILL_TRACING);
        }
        return (graph?.nodes ?? []).map(operationNode);
    });
}

/** The guards, each with its type and a link to the line that caused it; those without a line, Dynamo's own, come last. */
export function createGuardsView(compiles: Compiles): PullTree {
    return new PullTree("dynamo.guards", compiles, async () => {
        const guards = await compiles.guards();
        const own = guards.filter((guard) => guard.place === undefined);
        return [...guards.filter((guard) => guard.place !== undefined), ...own].map(guardNode);
    });
}

function operationNode(node: GraphNode): TreeNode {
    const made = makeNode(`node ${node.name}`, node.name, OPERATION_ICONS[node.operation] ?? "symbol-operator", {
        description: [expressionOf(node), node.value].filter((part) => part).join("  "),
        tooltip: [node.operation, node.target, node.value].filter((part) => part).join("  "),
    });
    linkTo(made.item, node.place);
    return made;
}

function expressionOf(node: GraphNode): string {
    const text = node.expression ?? node.target;
    return text === node.name ? "" : node.operation === "call_function" ? `= ${text}` : text;
}

function guardNode(guard: Guard, index: number): TreeNode {
    const made = makeNode(`guard ${index}`, guard.expression, "shield", {
        tooltip: `${guard.type}\n${guard.expression}`,
    });
    linkTo(made.item, guard.place);
    const type = guard.type === guard.expression ? "" : guard.type;
    made.item.description = [made.item.description, type].filter((part) => part).join("  ");
    return made;
}
