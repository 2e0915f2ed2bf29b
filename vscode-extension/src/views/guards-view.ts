/** The view "Guards" of the selected compile. */

import * as vscode from "vscode";

import type { Compiles } from "../session/compiles.js";
import type { Guard } from "../session/requests.js";
import { linkTo } from "./links.js";
import { makeNode, PullTree, type TreeNode } from "./pull-tree.js";
import { groupedGuards } from "./guard-groups.js";

/** Lists the guards, each with its type and a link to the line that caused it. Dynamo's own guards come last. */
export function createGuardsView(compiles: Compiles): PullTree {
    return new PullTree("dynamo.guards", compiles, async (view) => {
        const title = await compiles.title();
        const answer = await compiles.guards();
        view.description = answer?.isFinal === false ? vscode.l10n.t("{0}, so far", title) : title;
        const groups = groupedGuards(answer?.guards ?? []);
        const own = groups.filter(([main]) => main.place === undefined);
        return [...groups.filter(([main]) => main.place !== undefined), ...own].map(groupNode);
    });
}

/** A guard in plain words. If it has several checks, the first one, which says the most, contains the others. */
function groupNode(group: [Guard, ...Guard[]], index: number): TreeNode {
    const [first] = group;
    if (group.length === 1) {
        return guardNode(first, `guard ${index}`);
    }
    const children = group.map((guard, position) => guardNode(guard, `guard ${index}, ${position}`));
    const title = first.text ?? `${first.type} ${first.source ?? ""}`;
    const node = makeNode(`guard ${index}`, title, "shield", { description: `${group.length} checks`, children });
    linkTo(node.item, first.place);
    return node;
}

function guardNode(guard: Guard, id: string): TreeNode {
    const made = makeNode(id, guard.text ?? guard.expression, "shield", { tooltip: `${guard.type}\n${guard.expression}` });
    linkTo(made.item, guard.place);
    const type = guard.type === guard.expression ? "" : guard.type;
    made.item.description = [made.item.description, type].filter((part) => part).join("  ");
    return made;
}
