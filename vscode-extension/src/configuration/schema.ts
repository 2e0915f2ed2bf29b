/**
 * Checks configurations against the JSON schemas in package.json, so that options are declared only there. Supports
 * only the keywords that these schemas use. Without VS Code's API.
 */

import { localized } from "../localized.js";

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

/** A function, because the user's language is unknown when the module is loaded. */
function typeNames(): Record<string, string> {
    return {
        string: localized("a string"),
        boolean: localized("true or false"),
        number: localized("a number"),
        integer: localized("a whole number"),
        array: localized("a list"),
        object: localized("an object"),
        null: "null",
    };
}

/** Returns one sentence for each wrong property of `value`, with the property's full name. */
export function wrongProperties(value: Readonly<Record<string, unknown>>, schema: Schema, within = ""): string[] {
    const missing = (schema.required ?? [])
        .filter((name) => value[name] === undefined)
        .map((name) => localized("\"{0}{1}\" is missing.", within, name));
    const wrong = Object.entries(schema.properties ?? {}).flatMap(([name, property]) =>
        value[name] === undefined ? [] : wrongValue(value[name], property, within + name),
    );
    return [...missing, ...wrong];
}

function wrongValue(value: unknown, schema: Schema, name: string): string[] {
    const fitting = (schema.anyOf ?? [schema]).find((candidate) => hasType(value, candidate));
    if (fitting === undefined) {
        return [localized("\"{0}\" must be {1}, not {2}.", name, expected(schema), JSON.stringify(value))];
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
    return allowed(value, fitting) ? [] : [localized("\"{0}\" must be {1}, not {2}.", name, expected(fitting), JSON.stringify(value))];
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
        return schema.anyOf.map(expected).reduce(either);
    }
    if (schema.enum !== undefined) {
        return localized("one of {0}", schema.enum.map((choice) => JSON.stringify(choice)).join(", "));
    }
    const name = [schema.type ?? []].flat().map((type) => typeNames()[type] ?? type).reduce(either);
    const { exclusiveMinimum, minimum, maximum } = schema;
    if (exclusiveMinimum !== undefined) {
        return localized("{0} above {1}", name, exclusiveMinimum);
    }
    if (minimum === undefined) {
        return name;
    }
    return maximum === undefined ? localized("{0} from {1}", name, minimum) : localized("{0} from {1} to {2}", name, minimum, maximum);
}

function either(one: string, other: string): string {
    return localized("{0} or {1}", one, other);
}

function isObject(value: unknown): value is Record<string, unknown> {
    return typeof value === "object" && value !== null && !Array.isArray(value);
}
