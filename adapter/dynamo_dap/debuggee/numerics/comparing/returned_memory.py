"""Finds compiled graphs that return memory that an earlier call has returned and the program still uses.

Such a graph overwrites the earlier result. Comparing calls one by one finds nothing, since each call returns the right
values. Memory is known by its address, with a weak reference to it: freed memory may be used again. Runs on the threads
that make the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dynamo_dap.debuggee.numerics.comparing.compared_calls import outputs_of
from dynamo_dap.debuggee.numerics.faults.comparisons import Comparison, Fault
from dynamo_dap.debuggee.numerics.graphs.differences import Difference
from dynamo_dap.debuggee.replay.graph_calls import GraphCall, tensors_in
from dynamo_dap.debuggee.torch_api.code_objects.dynamo_names import user_function_name
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import address_of, is_memory_alive

_HOST = "cpu"
_KNOWN = 10_000
"""The number of known results beyond which those with freed memory are forgotten."""


class ReusedMemory(NamedTuple):
    """A result whose memory an earlier call has returned."""

    output: int
    """The result's position among the outputs of the graph."""
    address: int
    call: int
    """The number of the earlier call, among the calls of its graph."""
    function: str
    """The function of the earlier call."""


class _Returned(NamedTuple):
    is_alive: Callable[[], bool]
    call: int
    function: str


class ReturnedMemory:
    """The memory of results that calls have returned. Lives as long as the observer of calls."""

    def __init__(self) -> None:
        self._known: dict[int, _Returned] = {}
        """The latest call that returned the memory, by the memory's address."""

    def take(self, call: GraphCall) -> ReusedMemory | None:
        """Note the outputs of ``call``; return the first whose memory an earlier call has returned.

        Outputs in the memory of an input are ignored: the graph may return a view of an input.
        """
        of_inputs = set(addresses_in(call.given))
        function = user_function_name(call.frame.f_code)
        found = None
        made: dict[int, _Returned] = {}
        for position, output in enumerate(outputs_of(call)):
            for each in tensors_in([output]):
                address = address_of(each)
                # Look at the CPU only: CUDA graphs reuse memory by design, which the filter ``cudagraph`` reports.
                if not address or address in of_inputs or each.device.type != _HOST:
                    continue
                known = self._known.get(address)
                if found is None and known is not None and known.is_alive():
                    found = ReusedMemory(position, address, known.call, known.function)
                made[address] = _Returned(is_memory_alive(each), call.graph.calls, function)
        self._known.update(made)
        if len(self._known) > _KNOWN:
            self._known = {address: each for address, each in list(self._known.items()) if each.is_alive()}
        return found


def fault_of_memory(reused: ReusedMemory, comparison: Comparison) -> Fault | None:
    """Return the fault of a call with a result in ``reused`` memory; None if Dynamo's graph returns the same memory."""
    reference = comparison.reference.outputs
    if reused.output < len(reference) and reused.address in addresses_in([reference[reused.output]]):
        return None
    node = comparison.graph.output_nodes[reused.output]
    text = (
        f"Result {reused.output} overwrites a result of call {reused.call} of {reused.function}: it is in the same "
        "memory. Eager returns new memory."
    )
    return Fault(node, Difference(0.0, 0.0, False), None, comparison.outputs[reused.output], observed=text)


def memory_left_out(call: GraphCall) -> list[str]:
    """Return texts about results whose memory was not checked; none if all results are on the CPU."""
    devices = sorted({each.device.type for each in tensors_in(outputs_of(call))} - {_HOST})
    return [f"whether results on {device} overwrite those of earlier calls" for device in devices]


def addresses_in(values: Iterable[object]) -> list[int]:
    """Return the addresses of the memory of all tensors in ``values``."""
    return [address_of(each) for each in tensors_in(list(values))]
