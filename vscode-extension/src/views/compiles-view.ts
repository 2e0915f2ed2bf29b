/** The view "Compiles": compiled function > compile id > attempts, graphs, graph breaks, reasons of recompiles. */

import * as vscode from "vscode";

import type { Compiles, Selection } from "../session/compiles.js";
import type {
    Compile,
    CompiledFunction,
    GraphBreak,
    GraphSummary,
    GuardFailure,
    Sharding,
    Specialization,
} from "../session/requests.js";
import { attemptRows } from "./attempt-rows.js";
import { cudaGraphNode } from "./cuda-graph-node.js";
import { linkTo } from "./links.js";
import { makeNode, PullTree, type TreeNode } from "./pull-tree.js";

const STATE_ICONS: Record<Compile["state"], string> = {
    tracing: "sync",
    compiled: "pass",
    skipped: "circle-slash",
    failed: "error",
};

interface SelectableNode extends TreeNode {
    selection?: Selection;
}

const LOOK_AGAIN_MILLISECONDS = 100;
const LOOKS = 20;

/** Makes the view. The compile or graph that is selected here is shown in the other views. */
export function createCompilesView(compiles: Compiles): vscode.Disposable {
    const tree = new PullTree("dynamo.compiles", compiles, async () => (await compiles.all()).map(functionNode));
    /** While the tree is rebuilt, VS Code reports a selection without its node, so look again later. */
    const follow = (looks: number): void => {
        const [node] = tree.view.selection as readonly (SelectableNode | undefined)[];
        if (node?.selection !== undefined) {
            compiles.select(node.selection);
        } else if (node === undefined && looks > 0) {
            setTimeout(follow, LOOK_AGAIN_MILLISECONDS, looks - 1);
        }
    };
    const selecting = tree.view.onDidChangeSelection(() => {
        follow(LOOKS);
    });
    return vscode.Disposable.from(tree, selecting);
}

function functionNode(compiled: CompiledFunction, index: number): TreeNode {
    const node = makeNode(`function ${index}`, compiled.name, "symbol-function", {
        description: count(compiled.compiles.length, "compile"),
        children: compiled.compiles.map(compileNode),
        open: true,
    });
    linkTo(node.item, compiled.place);
    return node;
}

function compileNode(compile: Compile): SelectableNode {
    const id = `compile ${compile.id}`;
    const children = [
        ...(compile.problem === undefined ? [] : [makeNode(`${id} problem`, compile.problem, "warning")]),
        ...(compile.sharding === undefined ? [] : [shardingNode(`${id} sharding`, compile.sharding)]),
        ...(compile.failures ?? []).map((failure, index) => failureNode(`${id} failure ${index}`, failure)),
        ...attemptRows(compile).map(({ label, result }, index) => makeNode(`${id} attempt ${index}`, label, "history", { description: result })),
        ...compile.graphs.map((graph) => graphNode(compile.id, graph)),
        ...compile.breaks.map((found, index) => breakNode(`${id} break ${index}`, found)),
        ...(compile.specializations ?? []).map((found, index) => specializationNode(`${id} size ${index}`, found)),
        ...(compile.cudaGraphs ?? []).map((met, index) => cudaGraphNode(`${id} CUDA graph ${index}`, met)),
    ];
    const node = makeNode(id, `${compile.id}  ${compile.name}`, STATE_ICONS[compile.state], {
        description: [compile.state, elapsed(compile.seconds), compile.backend].filter((part) => part).join(" · "),
        children,
        open: compile.state === "tracing",
    });
    return { ...node, selection: { compileId: compile.id } };
}

function graphNode(compileId: string, graph: GraphSummary): SelectableNode {
    const node = makeNode(`compile ${compileId} graph ${graph.index}`, vscode.l10n.t("Graph {0}", graph.index), "type-hierarchy", {
        description: count(graph.operationCount, "operation"),
    });
    return { ...node, selection: { compileId, graph: graph.index } };
}

function failureNode(id: string, failure: GuardFailure): TreeNode {
    const values = failure.valueThen === undefined ? "" : `${failure.valueThen} → ${failure.valueNow ?? "?"}`;
    const node = makeNode(id, vscode.l10n.t("Recompiled"), "debug-restart", {
        description: [failure.text ?? failure.expression, values].filter((part) => part).join("  "),
        tooltip: failure.reason,
    });
    linkTo(node.item, failure.place);
    return node;
}

function breakNode(id: string, found: GraphBreak): TreeNode {
    const tooltip = new vscode.MarkdownString();
    for (const text of [found.explanation, found.effect]) {
        if (text !== undefined) {
            tooltip.appendText(text).appendMarkdown("\n\n");
        }
    }
    for (const hint of found.hints ?? []) {
        tooltip.appendMarkdown("- ").appendText(hint).appendMarkdown("\n");
    }
    if (found.link !== undefined && /^https:\/\/((docs\.)?pytorch\.org|meta-pytorch\.github\.io)\/[\w./-]+$/.test(found.link)) {
        tooltip.appendMarkdown(`\n[${vscode.l10n.t("Torch's page")}](${found.link})`);
    }
    const node = makeNode(id, vscode.l10n.t("Graph break"), "debug-disconnect", { description: found.reason });
    node.item.tooltip = tooltip.value === "" ? found.reason : tooltip;
    linkTo(node.item, found.place);
    return node;
}

/** A module that FSDP shards: its parameters, the number of ranks, and whether it was gathered. */
function shardingNode(id: string, sharding: Sharding): TreeNode {
    const { name, parameters, size, ranks, isGathered, isShardedAgain } = sharding;
    const bytes = size >= 2 ** 20 ? `${(size / 2 ** 20).toFixed(1)} MiB` : `${size} bytes`;
    const facts = [
        `${count(parameters, "parameter")} (${bytes}) of ${count(ranks, "rank")}`,
        isGathered ? vscode.l10n.t("gathered by a hook before the call (not part of a graph)") : vscode.l10n.t("not gathered yet"),
        isShardedAgain ? vscode.l10n.t("resharded after the call") : vscode.l10n.t("unsharded until the backward pass"),
    ].join(", ");
    const label = `FSDP: ${name === "" ? vscode.l10n.t("the model") : name}`;
    return makeNode(id, label, "split-horizontal", { description: facts, tooltip: `${label}: ${facts}` });
}

function specializationNode(id: string, found: Specialization): TreeNode {
    const node = makeNode(id, vscode.l10n.t("Specialized"), "pinned", { description: found.expression });
    linkTo(node.item, found.place);
    return node;
}

function count(number: number, thing: string): string {
    return `${number} ${thing}${number === 1 ? "" : "s"}`;
}

function elapsed(seconds: number | undefined): string | undefined {
    return seconds === undefined ? undefined : seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}
