/** Makes elements of the page. Texts are never taken for HTML. */

type Attributes = Record<string, string | number | boolean>;

/** The element of the page with an id. */
export function byId(id: string): HTMLElement {
    const found = document.getElementById(id);
    if (found === null) {
        throw new Error(`the page has no #${id}`);
    }
    return found;
}

/** The field of the page with an id, in which a person types, chooses or ticks. */
export function field(id: string): HTMLInputElement | HTMLSelectElement {
    const found = byId(id);
    if (found instanceof HTMLInputElement || found instanceof HTMLSelectElement) {
        return found;
    }
    throw new Error(`#${id} is not a field`);
}

/** Whether the box with an id is ticked. */
export function isTicked(id: string): boolean {
    const found = field(id);
    return found instanceof HTMLInputElement && found.checked;
}

/** A new element with attributes and what is in it. */
export function make<K extends keyof HTMLElementTagNameMap>(
    name: K,
    attributes: Attributes = {},
    ...inside: (Node | string)[]
): HTMLElementTagNameMap[K] {
    const made = document.createElement(name);
    for (const [attribute, value] of Object.entries(attributes)) {
        if (value !== false) {
            made.setAttribute(attribute, value === true ? "" : String(value));
        }
    }
    made.append(...inside);
    return made;
}

/** A colour of VS Code's theme. */
export function themeColour(name: string): string {
    return getComputedStyle(document.documentElement).getPropertyValue(`--vscode-${name}`).trim() || "#888888";
}
