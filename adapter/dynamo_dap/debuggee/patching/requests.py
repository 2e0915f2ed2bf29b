"""Serves the requests that patch generated code. Runs on the agent's reader thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.generated.known_code import BadAddress, CodeGone, GeneratedCodes, parsed_address
from dynamo_dap.debuggee.patching.assembling import PatchRefused
from dynamo_dap.debuggee.patching.patches import patch, revert, revert_all, runs_next
from dynamo_dap.debuggee.patching.scope import instruction_scope
from dynamo_dap.protocol.requests.contract import ErrorId, PatchArguments, PatchBody, UnpatchArguments, UnpatchBody


class Patcher:
    """Serves the requests that patch generated code. Implements ``agent.engine.CodePatcher``."""

    def __init__(self, codes: GeneratedCodes) -> None:
        """Patch ``codes``, show the scope *Instruction* in their frames, and revert patches when the session ends."""
        self._codes = codes
        codes.more_scopes.append(instruction_scope)
        codes.when_closed.append(lambda: revert_all(codes))

    def patch(self, arguments: PatchArguments) -> PatchBody:
        """Serve ``PATCH``."""
        with _refusals():
            generated, index = self._codes.instruction_at(parsed_address(arguments.instruction_reference))
            instruction = patch(generated, index, arguments.instruction)
            was = generated.unpatched.table[instruction.index]
            return PatchBody(runs_next(generated).name, str(instruction), str(was))

    def revert_patches(self, arguments: UnpatchArguments) -> UnpatchBody:
        """Serve ``UNPATCH``."""
        reference = arguments.instruction_reference
        if reference is None:
            return UnpatchBody(revert_all(self._codes))
        with _refusals():
            return UnpatchBody(revert(self._codes.instruction_at(parsed_address(reference))[0]))


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Answer a request that cannot be served with the reason."""
    try:
        yield
    except (BadAddress, CodeGone) as problem:
        raise RequestError(str(problem), error_id=ErrorId.NO_ADDRESS) from None
    except PatchRefused as problem:
        raise RequestError(str(problem), error_id=ErrorId.PATCH_REFUSED) from None
