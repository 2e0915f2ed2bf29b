/** Repeats a question until it has an answer: a record grows while the program runs, and a request may fail or hang. */

/** How long one question may take, and the first and the longest pause before the next one, in milliseconds. */
export interface Pace {
    patience: number;
    pause: number;
    longestPause: number;
}

const USUAL: Pace = { patience: 10_000, pause: 500, longestPause: 8000 };

/** Repeats `ask` until it returns true, or until `isOver`. A question that fails or takes too long counts as false. */
export async function askUntilFound(ask: () => Promise<boolean>, isOver: () => boolean, pace = USUAL): Promise<void> {
    for (let { pause } = pace; !isOver(); pause = Math.min(2 * pause, pace.longestPause)) {
        if (await answer(ask(), false, pace.patience)) {
            return;
        }
        await new Promise((done) => setTimeout(done, pause));
    }
}

/** Returns the answer, or `otherwise` if the question fails or takes too long. */
export async function answer<T>(question: Promise<T>, otherwise: T, patience = USUAL.patience): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<T>((done) => {
        timer = setTimeout(done, patience, otherwise);
    });
    const first = await Promise.race([question.catch(() => otherwise), late]);
    clearTimeout(timer);
    return first;
}
