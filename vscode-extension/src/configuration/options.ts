/** The shape of a `dynamo` configuration in launch.json. package.json describes it to the user. */

import type { DebugConfiguration } from "vscode";

export const DEBUG_TYPE = "dynamo";

/** The options that the extension itself reads. */
export interface DynamoConfiguration extends DebugConfiguration {
    program?: string;
    code?: string | string[];
    triton?: string;
    module?: string;
    connect?: { host?: string; port?: number | string };
    args?: string | string[];
    env?: Record<string, string | null>;
    cwd?: string;
    console?: string;
    internalConsoleOptions?: string;
    python?: string | string[];
    /** The command of the Python that runs the debug adapter; set by the extension. */
    __python?: string[];
    /** The socket of a running server, for an assistant's session. */
    __adapter?: string;
}
