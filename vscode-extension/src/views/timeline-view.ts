/**
 * The view "Timeline": the statements that the trace has visited in which the selected thread is held, those of a function
 * that was inlined below its call. A click goes to one; the view follows every stop.
 */

import * as vscode from "vscode";

import { DEBUG_TYPE } from "../configuration/options.js";
import { showInformation } from "../notifications.js";
import { requestGoTo, requestTimeline } from "../session/requests.js";
import { errorText } from "../session/stopped-frame.js";
import { PullTree, type TreeNode } from "./pull-tree.js";
import { statementNodes } from "./timeline-statements.js";

const QUIET_MILLISECONDS = 80;
/** How many statements are shown at first, around the current one. */
const PAGE = 400;
const MORE = 5;

/** Whose past is shown. */
interface Held {
    session: vscode.DebugSession;
    threadId: number;
}

/** Makes the view, and registers `dynamo.goToSnapshot` (a snapshot) and `dynamo.showMoreOfTimeline`. */
export function createTimelineView(): vscode.Disposable {
    const timeline = new Timeline();
    const tree = new PullTree("dynamo.timeline", timeline, (view) => timeline.roots(view));
    return vscode.Disposable.from(
        timeline,
        tree,
        vscode.commands.registerCommand("dynamo.goToSnapshot", (snapshot: number) => timeline.goTo(snapshot)),
        vscode.commands.registerCommand("dynamo.showMoreOfTimeline", () => {
            timeline.showMore();
        }),
    );
}

class Timeline implements vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<void>();
    private readonly registrations: vscode.Disposable[];
    private timer: NodeJS.Timeout | undefined;
    private held: Held | undefined;
    private count = PAGE;

    readonly onDidChange = this.changed.event;

    constructor() {
        const changeSoon = (): void => {
            clearTimeout(this.timer);
            this.timer = setTimeout(() => {
                this.changed.fire();
            }, QUIET_MILLISECONDS);
        };
        this.registrations = [
            vscode.debug.onDidChangeActiveStackItem(changeSoon),
            vscode.debug.onDidChangeBreakpoints(changeSoon),
            vscode.debug.onDidTerminateDebugSession(() => {
                this.count = PAGE;
                changeSoon();
            }),
        ];
    }

    dispose(): void {
        clearTimeout(this.timer);
        vscode.Disposable.from(...this.registrations, this.changed).dispose();
    }

    /** The statements at the depth of the outermost function; rejects where there is no past. */
    async roots(view: vscode.TreeView<TreeNode>): Promise<TreeNode[]> {
        view.description = "";
        const item = vscode.debug.activeStackItem;
        // The thread is selected, without a frame, while it runs.
        this.held = item instanceof vscode.DebugStackFrame && item.session.type === DEBUG_TYPE ? item : undefined;
        if (this.held === undefined) {
            return [];
        }
        const body = await requestTimeline(this.held.session, { threadId: this.held.threadId, count: this.count });
        const { nodes, current } = await statementNodes(body);
        if (current !== undefined) {
            view.description = `${current.number} of ${body.total}`;
            // The view learns of the nodes when this has returned.
            setTimeout(() => void reveal(view, current.node));
        }
        return nodes;
    }

    async goTo(snapshot: number): Promise<void> {
        try {
            if (this.held !== undefined) {
                await requestGoTo(this.held.session, { threadId: this.held.threadId, snapshot });
            }
        } catch (problem) {
            void showInformation(errorText(problem));
        }
    }

    showMore(): void {
        this.count *= MORE;
        this.changed.fire();
    }
}

/** A view that is folded stays so. */
async function reveal(view: vscode.TreeView<TreeNode>, node: TreeNode): Promise<void> {
    if (view.visible) {
        // The next stop may have come meanwhile, with other nodes.
        await Promise.resolve(view.reveal(node, { select: true, focus: false })).catch(() => undefined);
    }
}
