"""The numbers of documents, which must not run out in a program that keeps compiling."""

from __future__ import annotations

import pytest

from dynamo_dap.debuggee.agent.engine import RequestError
from dynamo_dap.debuggee.agent.references import MAXIMUM_SOURCES, ReferenceTable
from dynamo_dap.debuggee.values.model import VirtualSource


def document(number: int) -> VirtualSource:
    return VirtualSource(f"generated code #{number}", lambda: str(number), key=number)


def test_documents_that_were_met_longest_ago_are_forgotten() -> None:
    references = ReferenceTable()
    numbers = [references.number_of(document(each), None) for each in range(MAXIMUM_SOURCES)]
    assert references.number_of(document(0), None) == numbers[0]
    newest = references.number_of(document(MAXIMUM_SOURCES), None)
    for number, text in ((numbers[0], "0"), (numbers[2], "2"), (newest, str(MAXIMUM_SOURCES))):
        assert references.find(number, "source reference").target.text() == text
    with pytest.raises(RequestError, match=f"source reference {numbers[1]} has expired"):
        references.find(numbers[1], "source reference")
    assert references.number_of(document(1), None) > newest
