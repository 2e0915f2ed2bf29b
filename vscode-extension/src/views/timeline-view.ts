/**
 * The view "Timeline": the statements that the trace of the selected thread has visited. Statements of an inlined
 * function are children of its call. A click on a statement goes there. The view follows every stop.
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

/** The thread whose history is shown. */
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

    /** The statements of the outermost function; rejects if there is no history. */
    async roots(view: vscode.TreeView<TreeNode>): Promise<TreeNode[]> {
        view.description = "";
        const item = vscode.debug.activeStackItem;
        // While a thread runs, the active item is the thread, without a frame.
        this.held = item instanceof vscode.DebugStackFrame && item.session.type === DEBUG_TYPE ? item : undefined;
        if (this.held === undefined) {
            return [];
        }
        const body = await requestTimeline(this.held.session, { threadId: this.held.threadId, count: this.count });
        const { nodes, current } = await statementNodes(body);
        if (current !== undefined) {
            view.description = `${current.number} of ${body.total}`;
            // Later, because the view knows the nodes only after this function has returned.
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

/** Selects a node in the view. A collapsed view stays collapsed. */
async function reveal(view: vscode.TreeView<TreeNode>, node: TreeNode): Promise<void> {
    if (view.visible) {
        // Fails if the next stop has replaced the nodes meanwhile.
        await Promise.resolve(view.reveal(node, { select: true, focus: false })).catch(() => undefined);
    }
}
