"""Finds elements that two programs of a launch access without order, at least one by a plain store.

The interpreter runs programs one after the other; a GPU runs them in any order. So each element of memory keeps which
program stored it last, and which two loaded it last. Each access is compared with that. Atomic operations do not race.
They order programs, as locks do: what a program did before it released an address comes before what another does after
acquiring it. Notes live as long as their launch, and are bounded: accesses beyond the bound are counted. Arrays are
NumPy's. Runs on the thread that runs the kernel.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dynamo_dap.debuggee.triton.accesses import Access, Order

MOST_ELEMENTS = 16 * 2**20
"""Elements of a launch that are noted, for stores and for loads: their notes take 192 MiB."""
_PAGE_BITS = 12
_PAGE = 1 << _PAGE_BITS
_MOST_LOCKS = 64
"""An atomic operation on more lanes is taken for a counter, not a lock."""

Index = tuple[int, int, int]


class Place(NamedTuple):
    """A line of a kernel."""

    path: str
    line: int


class Noted(NamedTuple):
    """Accesses of one program at one line, between two of its releases."""

    program: Index
    place: Place
    releases: int
    """How many releases the program had made before."""


@dataclass(frozen=True, eq=False)
class Race:
    """Two programs access the same elements without order."""

    access: Access
    program: Index
    place: Place
    did: str
    """The other program's access: ``load`` or ``store``."""
    other: Noted
    addresses: tuple[int, ...]
    """The elements' addresses."""
    values: tuple[Any, Any] | None = None
    """For two stores: arrays of the present and the new values, by element."""

    @property
    def differing(self) -> int | None:
        """How many elements change their value; None if one of the programs loads."""
        if self.values is None:
            return None
        before, after = map(_bits, self.values)
        return int((before != after).any(axis=1).sum())

    @property
    def key(self) -> tuple[object, ...]:
        """Identifies the race, whichever programs have it."""
        return self.did, self.other.place, self.access.what, self.place, bool(self.differing)


def _bits(array: Any) -> Any:
    numpy = sys.modules["numpy"]
    return numpy.ascontiguousarray(array).view(numpy.uint8).reshape(len(array), -1)


class Elements:
    """What the programs of one launch did to each element of memory."""

    def __init__(self, unit: int) -> None:
        self._unit = unit
        """Bytes per unit: the size of the smallest element."""
        self._noted: list[Noted] = []
        self._numbers: dict[tuple[Place, int], int] = {}
        """The numbers of the running program's items in ``_noted``, from 1 on."""
        self._program: Index = (0, 0, 0)
        self._first = 1
        """The running program's first number."""
        self._stores: dict[int, object] = {}
        """By page: for each unit the number of its last store, 0 for none."""
        self._loads: dict[int, Any] = {}
        """By page: for each unit the numbers of its last load, and of the last load by another program."""
        self._orders = _Orders()
        self._reported: set[tuple[object, ...]] = set()
        self.left_out = 0
        """Accesses to elements beyond the bound."""

    def program_begins(self, program: Index) -> None:
        """Begin the next program."""
        self._program = program
        self._first = len(self._noted) + 1
        self._numbers.clear()
        self._orders.program_begins(program)

    def reported(self, race: Race) -> None:
        """Report no more races at the same lines."""
        self._reported.add(race.key)

    def access(self, access: Access, place: Place) -> Race | None:
        """Note an access; return the first race that it causes."""
        if access.order is not None:
            self._orders.operation(access)
            return None
        if access.is_volatile or not access.pointers.data.size:
            return None
        number = self._number(place)
        found = self._compare_and_note(access, number)
        for did, other, units in found:
            keys = {(did, other.place, access.what, place, differs) for differs in (False, True)}
            if keys <= self._reported or (did != access.what and keys & self._reported):
                continue
            race = self._race(access, place, did, other, units)
            if race.key not in self._reported:
                return race
        return None

    def _number(self, place: Place) -> int:
        key = (place, self._orders.releases)
        number = self._numbers.get(key)
        if number is None:
            self._noted.append(Noted(self._program, *key))
            number = self._numbers[key] = len(self._noted)
        return number

    def _compare_and_note(self, access: Access, number: int) -> list[tuple[str, Noted, list[object]]]:
        """Return the other programs' accesses to the same units, as arrays: at most one per line and program."""
        found: dict[tuple[str, int], list[object]] = {}
        is_store = access.what == "store"
        for page, units in self._units(access):
            self._compare(found, "store", self._stores.get(page), page, units)
            if is_store:
                loads = self._loads.get(page)
                for one in () if loads is None else loads:
                    self._compare(found, "load", one, page, units)
                stores = self._page(self._stores, page, 1, len(units))
                if stores is not None:
                    stores[0][units] = number
            else:
                loads = self._page(self._loads, page, 2, len(units))
                if loads is not None:
                    _note_load(loads, units, number, self._first)
        racing = [
            (did, self._noted[other - 1], units)
            for (did, other), units in found.items()
            if not self._orders.is_ordered(self._noted[other - 1])
        ]
        return sorted(racing, key=lambda one: one[0] != "store")

    def _compare(self, found: dict[tuple[str, int], list[object]], did: str, noted: Any, page: int, units: Any) -> None:
        if noted is None:
            return
        numpy = sys.modules["numpy"]
        of_units = (noted[0] if did == "store" else noted)[units]
        is_other = (of_units > 0) & (of_units < self._first)
        if not is_other.any():
            return
        for other in numpy.unique(of_units[is_other]):
            own = numpy.unique(units[of_units == other])
            found.setdefault((did, int(other)), []).append((page << _PAGE_BITS) + own)

    # -- units and pages -------------------------------------------------------------------------------------------

    def _units(self, access: Access) -> Iterator[tuple[int, Any]]:
        """Return the accessed units of each page."""
        numpy = sys.modules["numpy"]
        size, addresses = access.size, access.addresses()
        if size % self._unit or (addresses % self._unit).any():
            self._refine(1)
        units = (addresses // numpy.uint64(self._unit)).astype(numpy.int64)
        if size > self._unit:
            units = (units[:, None] + numpy.arange(size // self._unit)).reshape(-1)
        if units.size > 1 and (numpy.diff(units) < 0).any():
            units = numpy.sort(units)
        pages = units >> _PAGE_BITS
        begins = [0, *(numpy.flatnonzero(numpy.diff(pages)) + 1).tolist(), units.size]
        for begin, end in itertools.pairwise(begins):
            if begin < end:
                yield int(pages[begin]), units[begin:end] & (_PAGE - 1)

    def _page(self, pages: dict[int, object], page: int, rows: int, count: int) -> Any:
        """Return the notes of a page; None beyond the bound."""
        found = pages.get(page)
        if found is None:
            if (len(pages) + 1) * _PAGE > MOST_ELEMENTS:
                self.left_out += count
                return None
            numpy = sys.modules["numpy"]
            found = pages[page] = numpy.zeros((rows, _PAGE), dtype=numpy.int32)
        return found

    def _refine(self, unit: int) -> None:
        """Use smaller units."""
        parts = self._unit // unit
        self._unit = unit
        numpy = sys.modules["numpy"]
        for pages in (self._stores, self._loads):
            coarse = dict(pages)
            pages.clear()
            for page, notes in coarse.items():
                fine = numpy.repeat(notes, parts, axis=1)
                for part in range(parts):
                    pages[page * parts + part] = fine[:, part * _PAGE : (part + 1) * _PAGE].copy()

    # -- races -----------------------------------------------------------------------------------------------------

    def _race(self, access: Access, place: Place, did: str, other: Noted, units: list[object]) -> Race:
        numpy = sys.modules["numpy"]
        # Of lanes with the same address, the last one's value stays.
        addresses, lanes = numpy.unique(access.addresses()[::-1].astype(numpy.int64), return_index=True)
        parts = (addresses[:, None] + numpy.arange(0, access.size, self._unit)) // self._unit
        is_racing = numpy.isin(parts, numpy.concatenate(units)).any(axis=1)
        addresses, lanes = addresses[is_racing], lanes[is_racing]
        values = None
        if did == access.what:
            after = numpy.ascontiguousarray(access.stored()[::-1][lanes])
            values = numpy.frombuffer(_memory(addresses, access.size), dtype=after.dtype), after
        return Race(access, self._program, place, did, other, tuple(addresses.tolist()), values)


def _note_load(loads: Any, units: Any, number: int, first: int) -> None:
    last, of_other = loads
    before = last[units]
    is_other = (before > 0) & (before < first)
    of_other[units[is_other]] = before[is_other]
    last[units] = number


def _memory(addresses: Any, size: int) -> bytes:
    """Return the memory at some elements, whose addresses rise: what the other program stored."""
    numpy = sys.modules["numpy"]
    begins = [0, *(numpy.flatnonzero(numpy.diff(addresses) != size) + 1).tolist(), len(addresses)]
    return b"".join(
        ctypes.string_at(int(addresses[begin]), (end - begin) * size) for begin, end in itertools.pairwise(begins)
    )


class _Orders:
    """Which programs of a launch have waited for which others, by atomic operations."""

    def __init__(self) -> None:
        self.releases = 0
        """For the running program."""
        self._program: Index = (0, 0, 0)
        self._released: dict[int, list[tuple[Index, int]]] = {}
        """By address: the program that released it, and its count of releases."""
        self._acquired: dict[Index, list[tuple[int, int, int]]] = {}
        """By program, for each acquire: its own releases so far, the address, and the address's releases so far."""

    def program_begins(self, program: Index) -> None:
        """Begin the next program."""
        self._program, self.releases = program, 0

    def operation(self, access: Access) -> None:
        """Note an atomic operation that the program is about to do."""
        addresses = access.addresses()
        if not access.order or addresses.size > _MOST_LOCKS:
            return
        for address in map(int, addresses):
            released = self._released.setdefault(address, [])
            if Order.ACQUIRE in access.order and released:
                acquired = self._acquired.setdefault(self._program, [])
                acquired.append((self.releases, address, len(released)))
            if Order.RELEASE in access.order:
                released.append((self._program, self.releases))
        self.releases += Order.RELEASE in access.order

    def is_ordered(self, noted: Noted) -> bool:
        """Return whether the running program has waited for what ``noted`` describes."""
        seen: dict[int, int] = {}
        waiting = list(self._acquired.get(self._program, ()))
        while waiting:
            _, address, count = waiting.pop()
            known = seen.get(address, 0)
            seen[address] = max(known, count)
            for program, releases in reversed(self._released[address][known:count]):
                if program == noted.program and releases >= noted.releases:
                    return True
                waiting += [one for one in self._acquired.get(program, ()) if one[0] <= releases]
        return False
