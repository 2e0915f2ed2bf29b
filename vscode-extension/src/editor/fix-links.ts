/** Chooses which fixes are links above a line, without VS Code's API: all of them share the line, which is cut at its end. */

/** About the characters that an editor of a window of 1440 pixels shows beside the side bar. */
const LONGEST_LINE = 120;
/** Of the icon, of "(not tried)" and of the mark between two links. */
const AROUND_TITLE = 16;
const TRIAL = 16;

export interface FixLink<T> {
    fix: T;
    /** Whether it tries the fix before it: its short title is enough. */
    isTrial: boolean;
}

/** Chooses from fixes, each of which may be followed by its trial; the first is always among them. */
export function fixLinks<T extends { title: string }>(fixes: readonly T[]): FixLink<T>[] {
    const links = fixes.map((fix, index) => ({ fix, isTrial: index > 0 && fix.title.endsWith(`: ${fixes[index - 1]?.title}`) }));
    let length = 0;
    return links.filter(({ fix, isTrial }, index) => {
        length += isTrial ? TRIAL : fix.title.length + AROUND_TITLE;
        return index === 0 || length <= LONGEST_LINE;
    });
}
