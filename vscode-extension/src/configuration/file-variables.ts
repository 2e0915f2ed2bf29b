/** Replaces VS Code's variables that stand for a file. Without VS Code's API. */

import { dirname } from "node:path";

import type { DynamoConfiguration } from "./options.js";

/** Replaces `${file}` and `${fileDirname}`. Keeps values of a wrong type, which are validated later. */
export function withFile(configuration: DynamoConfiguration, file: string): DynamoConfiguration {
    const filled = (value: unknown): unknown => {
        if (Array.isArray(value)) {
            return value.map(filled);
        }
        return typeof value === "string" ? value.replaceAll("${file}", () => file).replaceAll("${fileDirname}", () => dirname(file)) : value;
    };
    const given = (["program", "args", "cwd"] as const).filter((name) => configuration[name] !== undefined);
    return { ...configuration, ...Object.fromEntries(given.map((name) => [name, filled(configuration[name])])) };
}
