/**
 * Translates texts in modules that also run without VS Code: in unit tests, which show the English text, and in pages,
 * which contain the translations. All other modules call `vscode.l10n.t`.
 */

type Argument = string | number | boolean;
type Translate = (text: string, ...values: Argument[]) => string;

let translate: Translate = filledIn;

/** Replaces the function that translates, by default `filledIn`. */
export function localizeWith(other: Translate): void {
    translate = other;
}

/** Returns the text in the user's language, with its values filled in. */
export function localized(text: string, ...values: Argument[]): string {
    return translate(text, ...values);
}

/** Returns the text with its values instead of `{0}`, `{1}` and so on. */
export function filledIn(text: string, ...values: Argument[]): string {
    return text.replace(/\{(\d+)\}/g, (_, index) => String(values[Number(index)]));
}
