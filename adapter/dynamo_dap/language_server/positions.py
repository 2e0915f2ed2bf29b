"""Converts lines counted from 1 and columns in characters to positions as the client counts them."""

from __future__ import annotations

from lsprotocol.types import Position, Range
from pygls.workspace import PositionCodec

from dynamo_dap.language_server.document import Document


class Positions:
    """Translates for one client."""

    def __init__(self, codec: PositionCodec) -> None:
        self._codec = codec

    def position(self, document: Document, line: int, column: int) -> Position:
        """Return a position for the client."""
        return Position(line - 1, self._codec.client_num_units(document.text(line)[:column]))

    def place(self, document: Document, position: Position) -> tuple[int, int]:
        """Return line and column of a position that the client gave."""
        line = position.line + 1
        text = document.text(line)
        units = 0
        for column, character in enumerate(text):
            if units >= position.character:
                return line, column
            units += self._codec.client_num_units(character)
        return line, len(text)

    def span(self, document: Document, line: int, start: int, end: int) -> Range:
        """Return the range between two columns of a line."""
        return Range(self.position(document, line, start), self.position(document, line, end))

    def code(self, document: Document, first: int, last: int) -> Range:
        """Return the range of lines, without the white space around them."""
        start = len(document.indentation(first))
        end = len(document.text(last).rstrip())
        return Range(self.position(document, first, start), self.position(document, last, max(end, 0)))
