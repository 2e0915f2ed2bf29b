"""Finds and explains races between the programs of a kernel's launch, while the filter ``race`` is on.

One for a process that interprets kernels; runs on the threads that launch them. Accesses are kept from the beginning of
a launch, or from setting the filter, to the end of the launch.
"""

from __future__ import annotations

import os
import threading
import types
from collections.abc import Callable, Mapping, Sequence

from dynamo_dap.debuggee.kernel_races.elements import Elements, Place, Race
from dynamo_dap.debuggee.torch_api.graphs.tensor_facts import facts_of
from dynamo_dap.debuggee.torch_api.objects import Tensor
from dynamo_dap.debuggee.triton.accesses import Access
from dynamo_dap.debuggee.triton.blocks import number_of
from dynamo_dap.debuggee.triton.launches import Argument, Launch, text_of_index
from dynamo_dap.debuggee.triton.pointers import argument_of

_MOST_ELEMENTS = 8
"""Maximum number of elements that a text lists."""
_DONE = {"load": "has loaded", "store": "has stored"}


class KernelRaces:
    """Follows the accesses of launches, and reports programs that race."""

    def __init__(self, on_left_out: Callable[[str], None]) -> None:
        self._local = _OfThread()
        self._on_left_out = on_left_out

    def program_begins(self, launch: Launch, follows_accesses: bool) -> None:
        """Prepare for the next program of a launch, and follow its accesses if ``follows_accesses``."""
        elements = self._local.followed.get(launch)
        if elements is not None:
            elements.program_begins(launch.program or (0, 0, 0))
        elif follows_accesses:
            self._begin(launch)

    def launch_ended(self, launch: Launch) -> None:
        """Forget the launch; report skipped accesses."""
        elements = self._local.followed.pop(launch, None)
        if elements is not None and elements.left_out:
            self._on_left_out(
                f"dynamo-dap: {launch.name} accesses more memory than is checked for races: "
                f"{elements.left_out:,} accesses of elements were not compared with those of other programs\n"
            )

    def find(self, launch: Launch, access: Access, frame: types.FrameType) -> FoundRace | None:
        """Note an access at a line of the kernel; return its race, if any."""
        elements = self._local.followed.get(launch)
        if elements is None:
            elements = self._begin(launch, is_within_program=True)
        place = Place(frame.f_code.co_filename, frame.f_lineno)
        race = elements.access(access, place)
        return None if race is None else FoundRace(race, elements)

    def _begin(self, launch: Launch, is_within_program: bool = False) -> Elements:
        sizes = {argument.element_size for argument in launch.arguments.values()}
        elements = self._local.followed[launch] = Elements(min(sizes, default=1))
        program = launch.program or (0, 0, 0)
        elements.program_begins(program)
        if is_within_program or any(program):
            self._on_left_out(
                f"dynamo-dap: {launch.name} is checked for races only from its program {text_of_index(program)} on, "
                "where the filter was set\n"
            )
        return elements


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.followed: dict[Launch, Elements] = {}


class FoundRace:
    """A race at the line that is about to run."""

    def __init__(self, race: Race, elements: Elements) -> None:
        self._race = race
        self._of_launch = elements
        self._argument = argument_of(race.access.pointers)

    def report_once(self) -> None:
        """Report no other race at the same lines of this launch."""
        self._of_launch.reported(self._race)

    @property
    def names(self) -> Mapping[str, object]:
        """The names for conditions."""
        race = self._race
        return {
            "__tensor__": "" if self._argument is None else self._argument.name,
            "__elements__": self._elements()[:_MOST_ELEMENTS],
            "__programs__": (race.other.program, race.program),
            "__differ__": race.differing != 0,
        }

    @property
    def headline(self) -> str:
        """The programs and their accesses, in a few words."""
        race = self._race
        programs = f"{text_of_index(race.other.program)} and {text_of_index(race.program)}"
        if race.did == race.access.what:
            return f"programs {programs} store to the same {self._units}{'' if race.differing else ': equal values'}"
        return f"programs {programs} {race.did} and {race.access.what} the same {self._units}"

    @property
    def text(self) -> str:
        """Return the programs, their accesses and lines, and the elements."""
        race = self._race
        other, place = text_of_index(race.other.program), race.other.place
        where = "this line" if place == race.place else f"{os.path.basename(place.path)}:{place.line}"
        first = (
            f"{self._elements_text()}: program {other} {_DONE[race.did]} it at {where}, and program "
            f"{text_of_index(race.program)} is about to {race.access.what} it at "
            f"{os.path.basename(race.place.path)}:{race.place.line}. On a GPU either may come first."
        )
        return "\n".join([first, *self._values_texts()])

    @property
    def _units(self) -> str:
        is_one = len(self._race.addresses) == 1
        if self._argument is None:
            return f"{'address' if is_one else 'addresses'} outside the kernel's tensors"
        return f"{'element' if is_one else 'elements'} of {self._argument.name}"

    def _elements(self) -> Sequence[int]:
        argument, addresses = self._argument, self._race.addresses
        if argument is None:
            return addresses
        return [(address - argument.address) // argument.element_size for address in addresses]

    def _elements_text(self) -> str:
        elements, argument = self._elements(), self._argument
        shown = [
            hex(element) if argument is None else _text_of_element(argument, element)
            for element in elements[:_MOST_ELEMENTS]
        ]
        more = [f"and {len(elements) - len(shown)} more"] if len(elements) > len(shown) else []
        word, _, whose = self._units.partition(" ")
        facts = "" if argument is None else f" ({facts_of(argument.tensor).text})"
        return f"{word} {', '.join([*shown, *more])} {whose}{facts}"

    def _values_texts(self) -> list[str]:
        values, differing = self._race.values, self._race.differing
        if values is None or differing is None:
            return []
        before, after = values
        dtype = self._race.access.pointers.get_element_ty()
        if not differing:
            value = number_of(before[0], dtype)
            several = f"The values are the same ({value}, the first)" if len(before) > 1 else f"Both are {value}"
            return [f"{several}: harmless only if they are equal for all inputs."]
        first = next(index for index in range(len(before)) if before[index].tobytes() != after[index].tobytes())
        pair = f"{number_of(before[first], dtype)} is there, {number_of(after[first], dtype)} is stored"
        return [f"{differing} of {len(before)} values differ: {pair}."]


def _text_of_element(argument: Argument, element: int) -> str:
    """Return an element as ``13 [3, 1]``: its place in the memory, and its index in the tensor."""
    tensor: Tensor = argument.tensor
    strides, sizes = tuple(tensor.stride()), tuple(tensor.size())
    if len(sizes) < 2:
        return str(element)
    rest, index = element, [0] * len(sizes)
    for axis in sorted(range(len(sizes)), key=lambda axis: (-strides[axis], sizes[axis])):
        if strides[axis] > 0:
            index[axis], rest = divmod(rest, strides[axis])
    is_inside = rest == 0 and all(0 <= one < size for one, size in zip(index, sizes, strict=True))
    return f"{element} [{', '.join(map(str, index))}]" if is_inside else str(element)
