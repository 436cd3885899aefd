"""Faults that a person can mend, and how they are worded."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A fault in what a person gave us: a configuration, a file, a model, a server.

    Its text is one line that names the file, key or record, what is wrong and what would be right. Commands print
    it without a traceback and exit with status 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known: the nearest valid one if there is any, else all of them."""
    names = sorted(map(str, known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "none is known"
