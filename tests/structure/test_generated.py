"""What is generated is what its source gives: nobody edited it, and nothing in it is unused."""

from __future__ import annotations

from tests.structure import generate_types


def test_the_structures_of_dap_are_those_of_the_schema_that_are_used() -> None:
    assert generate_types.PATH.read_text(encoding="utf-8") == generate_types.generated_text(), "run: make generate"
