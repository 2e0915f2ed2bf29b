/**
 * Checks values against the part of JSON schema that package.json uses to describe configurations, so that the options
 * are written down in one place. Knows nothing of VS Code's API.
 */

export interface Schema {
    type?: string | string[];
    enum?: unknown[];
    items?: Schema;
    properties?: Record<string, Schema>;
    additionalProperties?: Schema;
    required?: string[];
    minimum?: number;
    maximum?: number;
    exclusiveMinimum?: number;
    /** Alternatives, each with a type of its own. */
    anyOf?: Schema[];
}

const TYPE_NAMES: Record<string, string> = {
    string: "a string",
    boolean: "true or false",
    number: "a number",
    integer: "a whole number",
    array: "a list",
    object: "an object",
    null: "null",
};

/** Says, a sentence each, what is wrong with the properties of `value`; names are given as the user wrote them. */
export function wrongProperties(value: Readonly<Record<string, unknown>>, schema: Schema, within = ""): string[] {
    const missing = (schema.required ?? [])
        .filter((name) => value[name] === undefined)
        .map((name) => `"${within}${name}" is missing.`);
    const wrong = Object.entries(schema.properties ?? {}).flatMap(([name, property]) =>
        value[name] === undefined ? [] : wrongValue(value[name], property, within + name),
    );
    return [...missing, ...wrong];
}

function wrongValue(value: unknown, schema: Schema, name: string): string[] {
    const fitting = (schema.anyOf ?? [schema]).find((candidate) => hasType(value, candidate));
    if (fitting === undefined) {
        return [`"${name}" must be ${expected(schema)}, not ${JSON.stringify(value)}.`];
    }
    if (Array.isArray(value)) {
        return value.flatMap((item, index) => wrongValue(item, fitting.items ?? {}, `${name}[${index}]`));
    }
    if (isObject(value)) {
        const { additionalProperties } = fitting;
        const others = Object.entries(additionalProperties === undefined ? {} : value).flatMap(([key, item]) =>
            wrongValue(item, additionalProperties ?? {}, `${name}.${key}`),
        );
        return [...wrongProperties(value, fitting, `${name}.`), ...others];
    }
    return allowed(value, fitting) ? [] : [`"${name}" must be ${expected(fitting)}, not ${JSON.stringify(value)}.`];
}

function hasType(value: unknown, { type }: Schema): boolean {
    return type === undefined || [type].flat().some((name) => isOfType(value, name));
}

function isOfType(value: unknown, type: string): boolean {
    switch (type) {
        case "array":
            return Array.isArray(value);
        case "object":
            return isObject(value);
        case "integer":
            return Number.isInteger(value);
        case "null":
            return value === null;
        default:
            return typeof value === type;
    }
}

function allowed(value: unknown, schema: Schema): boolean {
    if (schema.enum !== undefined) {
        return schema.enum.includes(value);
    }
    return (
        typeof value !== "number" ||
        (value >= (schema.minimum ?? -Infinity) &&
            value <= (schema.maximum ?? Infinity) &&
            value > (schema.exclusiveMinimum ?? -Infinity))
    );
}

function expected(schema: Schema): string {
    if (schema.anyOf !== undefined) {
        return schema.anyOf.map(expected).join(" or ");
    }
    if (schema.enum !== undefined) {
        return `one of ${schema.enum.map((choice) => JSON.stringify(choice)).join(", ")}`;
    }
    const names = [schema.type ?? []].flat().map((type) => TYPE_NAMES[type] ?? type);
    const limits = [
        schema.exclusiveMinimum === undefined ? "" : ` above ${schema.exclusiveMinimum}`,
        schema.minimum === undefined ? "" : ` from ${schema.minimum}`,
        schema.maximum === undefined ? "" : ` to ${schema.maximum}`,
    ];
    return names.join(" or ") + limits.join("");
}

function isObject(value: unknown): value is Record<string, unknown> {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
