/** Makes elements of the page. Never interprets a text as HTML. */

type Attributes = Record<string, string | number | boolean>;

/** The element of the page with an id. */
export function byId(id: string): HTMLElement {
    const found = document.getElementById(id);
    if (found === null) {
        throw new Error(`the page has no #${id}`);
    }
    return found;
}

/** The input field or selection box of the page with an id. */
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

/** Makes an element with attributes and children. */
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
