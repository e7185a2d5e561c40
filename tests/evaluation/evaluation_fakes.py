"""A block table of a few lines, with the methods that evaluation reads."""

from typing import NamedTuple


class FakeTable:
    """Blocks given as (document id, title, text)."""

    def __init__(self, *blocks: tuple[str, str, str]):
        self.blocks = blocks
        self.rows = self.indexed = len(blocks)
        self.reads = 0

    def text(self, row: int) -> str:
        self.reads += 1
        return self.blocks[row][2]

    def title(self, row: int) -> str:
        return self.blocks[row][1]

    def rows_of_document(self, document_id: str) -> list[int]:
        rows = [row for row, block in enumerate(self.blocks) if block[0] == document_id]
        if not rows:
            raise KeyError(document_id)
        return rows


class FakeQuestion(NamedTuple):
    id: str
    question: str
    answers: tuple[str, ...]
    document: str | None
