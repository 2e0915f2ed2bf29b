/** Programs that several tests write into the workspace. */

/** A compiled function with one kernel. */
export const GATED = `import torch


@torch.compile
def gated(x):
    gate = torch.sigmoid(x)
    return x * gate


gated(torch.ones(64))
print("compiled")
`;
