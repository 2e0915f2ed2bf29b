/**
 * Translates texts in modules that also run without VS Code: in unit tests, where the English text is filled in, and in
 * pages, which have the translations. The other modules call `vscode.l10n.t` themselves.
 */

type Argument = string | number | boolean;
type Translate = (text: string, ...values: Argument[]) => string;

let translate: Translate = filledIn;

/** Translates from now on as VS Code does. */
export function localizeWith(other: Translate): void {
    translate = other;
}

/** The text in the user's language, with its values. */
export function localized(text: string, ...values: Argument[]): string {
    return translate(text, ...values);
}

/** The text with its values instead of `{0}`, `{1}` and so on. */
export function filledIn(text: string, ...values: Argument[]): string {
    return text.replace(/\{(\d+)\}/g, (_, index) => String(values[Number(index)]));
}
