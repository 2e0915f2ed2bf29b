/**
 * Translates texts in modules that also run without VS Code, in unit tests: there the English text is filled in. The
 * other modules call `vscode.l10n.t` themselves.
 */

type Argument = string | number | boolean;
type Translate = (text: string, ...values: Argument[]) => string;

let translate: Translate = (text, ...values) => text.replace(/\{(\d+)\}/g, (_, index) => String(values[Number(index)]));

/** Translates from now on as VS Code does. */
export function localizeWith(other: Translate): void {
    translate = other;
}

/** The text in the user's language, with its values. */
export function localized(text: string, ...values: Argument[]): string {
    return translate(text, ...values);
}
