"""Journals for people: count what is in them, merge those of several people, hand the answers out.

A journal here is the folder above the cells' folders (see `journal`). Nothing is locked: runs may read and write the
same journal all the while. `journal_prune` drops what is not needed.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from longflow.config import SLUG
from longflow.errors import UserError
from longflow.journal import Answer, Journal, Line, read_segment, segments, write_segment
from longflow.journal_prune import Needs, find_cells


def journal_root(folder: str | Path) -> Path:
    """The journal that a person means by a folder: the folder, or the journal in it if it is one of results."""
    inside = Path(folder) / "journal"
    return inside if inside.is_dir() else Path(folder)


@dataclass
class Stats:
    """What is in the journal of a cell. `needed` is None where that cannot be told."""

    cell: str
    files: int = 0
    answers: int = 0
    needed: int | None = None
    renderings: int = 0
    repeated: int = 0
    dropped: int = 0
    bytes: int = 0
    libraries: Counter[str] = field(default_factory=Counter)
    model: str | None = None


def stats(root: str | Path, wanted: Mapping[str, Needs] | None = None) -> list[Stats]:
    """Count what is in the journals of the cells under a folder. Raises UserError.

    Args:
        root: the journal.
        wanted: what the current configuration needs (`needs`), to tell how much of a journal that is.
    """
    found = []
    for cell in find_cells(root):
        made = Stats(cell)
        answers: dict[str, Answer] = {}
        renderings = set()
        for path in segments(Path(root) / cell):
            made.files += 1
            made.bytes += path.stat().st_size
            for line in read_segment(path):
                if line is None:
                    made.dropped += 1
                elif isinstance(line, Answer):
                    made.repeated += line.key in answers
                    answers.setdefault(line.key, line)
                else:
                    made.repeated += line.id in renderings
                    renderings.add(line.id)
        made.answers, made.renderings = len(answers), len(renderings)
        made.libraries.update(answer.libraries or "not named" for answer in answers.values())
        if wanted is not None and cell in wanted:
            made.model = wanted[cell].model
            if wanted[cell].unknown is None:
                made.needed = len(wanted[cell].answers & answers.keys())
        found.append(made)
    return found


def stats_text(found: Sequence[Stats]) -> str:
    """The counts as a table, then the sums by model and by the libraries that made the answers."""
    head = ["cell", "files", "answers", "needed", "renderings", "repeated", "torn/foreign", "bytes"]
    rows = [head]
    for each in found:
        needed = "?" if each.needed is None else f"{each.needed:,}"
        counts = (each.files, each.answers, needed, each.renderings, each.repeated, each.dropped, each.bytes)
        rows.append([each.cell, *(value if isinstance(value, str) else f"{value:,}" for value in counts)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    models: Counter[tuple[str, str]] = Counter()
    libraries: Counter[str] = Counter()
    for each in found:
        parts = each.cell.split(os.sep)
        name = parts[1] if len(parts) == 5 else "?"
        models[name, each.model or "unknown"] += each.answers
        libraries.update(each.libraries)
    lines += [f"{name} (identity {identity}): {n:,} answers" for (name, identity), n in sorted(models.items())]
    lines += [f"made with {name}: {n:,} answers" for name, n in sorted(libraries.items())]
    return "\n".join(lines)


@dataclass
class Merged:
    """What merging added to a cell, and how many answers there are another text of and that were left out."""

    cell: str
    answers: int
    renderings: int
    differing: int


def merge(sources: Sequence[str | Path], into: str | Path, renamed: Mapping[str, str] | None = None) -> list[Merged]:
    """Add to a journal what others hold and it lacks, by keys. What it holds stays as it is; twice is as once.

    Args:
        sources: journals, or folders of results with a journal in them. The first that has a key gives its value.
        into: the journal to add to; made if it does not exist.
        renamed: names of models in the sources' paths, and what they are called in `into`. A key holds no name, but
            the folder of a cell does.

    Returns the cells that something was added to or differed in. Raises UserError before anything is written for a
    source that is no journal or overlaps with `into`.
    """
    roots = [journal_root(source) for source in sources]
    target_root = journal_root(into)
    found: dict[str, list[Path]] = {}
    for root in roots:
        one, other = root.resolve(), target_root.resolve()
        if one == other or one in other.parents or other in one.parents:
            raise UserError(f"{root}: is, holds or lies in {target_root}, which it is to be merged into")
        here = find_cells(root)
        if not here:
            raise UserError(f"{root}: no journal is here; name the folder that holds the cells' folders")
        for cell in here:
            parts = cell.split(os.sep)
            if len(parts) == 5:
                parts[1] = (renamed or {}).get(parts[1], parts[1])
            found.setdefault(os.sep.join(parts), []).append(root / cell)
    done = []
    for cell, folders in sorted(found.items()):
        target = Journal(target_root / cell)
        new: list[Line] = []
        differing = 0
        for folder in folders:
            source = Journal(folder)
            for key, answer in source.answers.items():
                if key not in target.answers:
                    target.answers[key] = answer
                    new.append(answer)
                differing += target.answers[key].text != answer.text
            for name, rendering in source.renderings.items():
                if name not in target.renderings:
                    target.renderings[name] = rendering
                    new.append(rendering)
        if new:
            write_segment(target_root / cell, new)
        if new or differing:
            answers = sum(isinstance(line, Answer) for line in new)
            done.append(Merged(cell, answers, len(new) - answers, differing))
    return done


def renamings(given: Sequence[str]) -> dict[str, str]:
    """Names of models in another journal and here, out of THEIRS=OURS. Raises UserError."""
    found = {}
    for pair in given:
        old, _, new = pair.partition("=")
        if not SLUG.fullmatch(old) or not SLUG.fullmatch(new):
            raise UserError(f"--model {pair}: THEIRS=OURS was expected, two names of models as in the configuration")
        found[old] = new
    return found


def merge_text(done: Sequence[Merged]) -> str:
    """What a merge did, a line a cell."""
    lines = []
    for each in done:
        line = f"{each.cell}: {each.answers:,} answers and {each.renderings:,} renderings added"
        if each.differing:
            line += f"; {each.differing:,} answers differ from those that are there, which stay"
        lines.append(line)
    return "\n".join(lines) or "nothing to add"


def export(root: str | Path, only: str | None = None) -> Iterator[dict[str, Any]]:
    """The answers of a journal as rows for people: cell, key of the request, text and the rest; by cell and key.

    Args:
        root: the journal.
        only: a cell, or the beginning of cells (such as `lveval/my-model`). Raises UserError if there is none.
    """
    found = find_cells(root)
    chosen = [cell for cell in found if only is None or f"{cell}/".startswith(f"{only.rstrip('/')}/")]
    if not chosen and only is not None:
        raise UserError(f"{root}: nothing of {only!r} is in this journal; a cell or the beginning of one was expected")
    for cell in chosen:
        for _, answer in sorted(Journal(Path(root) / cell).answers.items()):
            fields = asdict(answer)
            yield {"cell": cell, **{name: value for name, value in fields.items() if value is not None}}
