/** How long a test waits for what takes long: a compile, or a click that a busy machine does not notice at once. */

export const LATE = { timeout: 150_000 };
