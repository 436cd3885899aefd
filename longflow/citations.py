"""What to cite for the benchmarks and data sets of a run, as BibTeX.

The entries are in `citations.bib`, each with the names of the benchmarks and data sets that it is for in its last
field, `longflow`. The demo's records are longflow's own and need none.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from longflow import benchmarks

FILE = Path(__file__).parent / "citations.bib"

NONE_NEEDED = ("demo",)
"""Benchmarks whose records are longflow's own."""

_ENTRY = re.compile(r"^@\w+\{([^,]+),\n.*?^\}$", re.MULTILINE | re.DOTALL)
_FOR = re.compile(r",\n  longflow = \{([^}]*)\}")


@dataclass(frozen=True)
class Entry:
    """A BibTeX entry: its key, its text, and the names of the benchmarks and data sets that it is for."""

    key: str
    text: str
    names: tuple[str, ...]


@functools.cache
def entries() -> tuple[Entry, ...]:
    """All entries, in the file's order."""
    found = []
    for match in _ENTRY.finditer(FILE.read_text(encoding="utf-8")):
        names = _FOR.search(match[0])
        found.append(Entry(match[1], _FOR.sub("", match[0]), tuple(names[1].split()) if names else ()))
    return tuple(found)


def for_run(datasets: Mapping[str, Sequence[str]]) -> str:
    """The BibTeX text for what was run: a file of its own.

    Args:
        datasets: the data sets that were run, by benchmark.

    A comment names each benchmark that the configuration declared, since only its owner knows what to cite.
    """
    shipped = benchmarks.names()
    run = {name for benchmark, names in datasets.items() if benchmark in shipped for name in (benchmark, *names)}
    comments = ["% Please cite the benchmarks that were run, and the sources of their data sets."]
    comments += [
        f"% {name}: declared in the configuration; cite the sources of its records."
        for name in datasets
        if name not in shipped
    ]
    parts = ["\n".join(comments), *(entry.text for entry in entries() if run & set(entry.names))]
    return "\n\n".join(parts) + "\n"
