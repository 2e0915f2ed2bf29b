/** Chooses the fixes to show as links. All links share one line, which VS Code cuts off. Without VS Code's API. */

/** About how many characters an editor shows beside the side bar, in a window of 1440 pixels. */
const LONGEST_LINE = 120;
/** The length of the icon and of the separator between two links. */
const AROUND_TITLE = 4;
/** The end of the title of a fix that the language server has not tried. */
const NOT_TRIED = / \(not tried\)$/;
const TRIAL = 16;

export interface FixLink<T> {
    fix: T;
    /** Whether this link tries the previous fix, so that a short title is enough. */
    isTrial: boolean;
}

/** Chooses from fixes, each of which may be followed by its trial. The first fix is always chosen. */
export function fixLinks<T extends { title: string }>(fixes: readonly T[]): FixLink<T>[] {
    const links = fixes.map((fix, index) => ({ fix, isTrial: index > 0 && fix.title.endsWith(`: ${fixes[index - 1]?.title.replace(NOT_TRIED, "")}`) }));
    let length = 0;
    return links.filter(({ fix, isTrial }, index) => {
        length += isTrial ? TRIAL : fix.title.length + AROUND_TITLE;
        return index === 0 || length <= LONGEST_LINE;
    });
}
