"""What a check says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Word = Literal["ok", "problem", "cannot be told"]


@dataclass(frozen=True)
class Check:
    """What one check found: a word, what was looked at, and what there is to say, the remedy included."""

    word: Word
    what: str
    said: str

    def line(self) -> str:
        """One line for people."""
        return f"{self.word:<14}  {self.what}: {' '.join(self.said.split())}"


Checks = Iterator[Check]


def size_words(size: float) -> str:
    """Bytes, for people."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
