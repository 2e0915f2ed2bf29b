/** Counts what a user does: a click, a key, or a command that is typed. A task must take few of them. */

import { expect } from "@playwright/test";

const MOST = 5;

export class Gestures {
    private readonly done: string[] = [];

    /** Does one gesture, named as a user would. */
    async do(name: string, gesture: () => Promise<unknown>): Promise<void> {
        this.done.push(name);
        await gesture();
    }

    /** Fails if the task took more than a user has patience for. */
    expectFew(): void {
        expect(this.done.length, this.done.join(", ")).toBeLessThanOrEqual(MOST);
    }
}
