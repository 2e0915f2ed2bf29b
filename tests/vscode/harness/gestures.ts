/** Counts a user's gestures: a click, a key, or a typed command. A task must take few gestures. */

import { expect } from "@playwright/test";

const MOST = 5;

export class Gestures {
    private readonly done: string[] = [];

    /** Performs one gesture. `name` describes it in a user's words. */
    async do(name: string, gesture: () => Promise<unknown>): Promise<void> {
        this.done.push(name);
        await gesture();
    }

    /** Fails if the task took too many gestures. */
    expectFew(): void {
        expect(this.done.length, this.done.join(", ")).toBeLessThanOrEqual(MOST);
    }
}
