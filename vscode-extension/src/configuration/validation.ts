/** Validates a configuration before anything starts. Without VS Code's API or access to files. */

import { wrongProperties, type Schema } from "./schema.js";
import { localized } from "../localized.js";

/** The schemas of both requests in package.json. */
export interface ConfigurationSchemas {
    launch: Schema;
    attach: Schema;
}

const TARGETS = ["program", "module", "code"] as const;
/** The server itself sets `handedOver`, for the session of a rank that connected to another session's address. */
const ADDRESSES = ["connect", "listen", "port", "handedOver"] as const;

/** Returns one sentence for each mistake in the configuration. */
export function problems(configuration: Readonly<Record<string, unknown>>, schemas: ConfigurationSchemas): string[] {
    switch (configuration.request) {
        case "launch":
            return [...wrongProperties(configuration, schemas.launch), ...wrongTarget(configuration)];
        case "attach":
            return [...wrongProperties(configuration, schemas.attach), ...missingAddress(configuration)];
        default:
            return [localized("\"request\" must be \"launch\" or \"attach\".")];
    }
}

function missingAddress(configuration: Readonly<Record<string, unknown>>): string[] {
    const given = ADDRESSES.some((name) => configuration[name] !== undefined);
    return given ? [] : [localized("\"connect\" is missing.")];
}

function wrongTarget(configuration: Readonly<Record<string, unknown>>): string[] {
    const given = TARGETS.filter((name) => configuration[name] !== undefined && configuration[name] !== "");
    if (given.length === 1) {
        return [];
    }
    return given.length === 0
        ? [localized("What to debug is missing: give one of \"program\", \"module\" and \"code\".")]
        : [localized("Give only one of {0}.", given.map((name) => `"${name}"`).reduce((all, name) => localized("{0} and {1}", all, name)))];
}
