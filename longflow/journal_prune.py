"""Pruning a journal: what the current configuration does not need goes, and many segments become one.

What is needed is what the prediction loop looks up. Nothing is locked: runs may read and write the journal all the
while, and a prune that is killed has lost nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longflow.config import Config, ImportedModel
from longflow.errors import UserError
from longflow.journal import (
    COMPACTED,
    TAKEN,
    Answer,
    Journal,
    Line,
    is_segment,
    parse,
    segments,
    sync_folder,
    write_segment,
)
from longflow.jsonio import digest

if TYPE_CHECKING:
    from longflow.cell_run import Job

IDLE = 3600.0
"""Seconds without a write after which the segment of a process that cannot be looked for is taken for finished."""


def find_cells(root: str | Path) -> list[str]:
    """The cells that have segments under a journal, as paths relative to it, sorted.

    Raises UserError if the folder does not exist or cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: the journal cannot be read ({error.strerror})") from error

    if not os.path.isdir(root):
        raise UserError(f"{root}: no journal is here; name the folder that holds the cells' folders")
    walk = os.walk(root, onerror=refuse)
    return sorted(os.path.relpath(folder, root) for folder, _, names in walk if any(map(is_segment, names)))


@dataclass
class Needs:
    """What a configuration asks of a cell's journal: renderings by id, answers by key.

    `unknown` says why that cannot be told in full; then nothing of the cell is to be dropped.
    """

    renderings: set[str] = field(default_factory=set)
    answers: set[str] = field(default_factory=set)
    unknown: str | None = None
    model: str | None = None
    """A short name of the model's identity."""


class _Noting(dict[str, Any]):
    """A dictionary that notes what it is asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)


def needs(config: Config) -> dict[str, Needs]:
    """What the cells of a configuration need of their journals, by the cell's name.

    It is what the prediction loop looks up when it counts what was answered before. So it is known in full only of a
    cell that was run with this configuration: before, it cannot be told which answers the prompts will ask for.
    """
    from longflow import cells, jobs

    files = cells.Files(config)
    found: dict[str, Needs] = {}
    for cell in cells.cells(config):
        if isinstance(config.models[cell.model], ImportedModel):
            continue
        model_file, records = files.model(cell.model), files.records_of(cell)
        if missing := [path for path in (model_file, records) if not os.path.exists(path)]:
            found[cell.name] = Needs(unknown=f"{missing[0]} is not made yet")
            continue
        spec = json.loads(cells.predict_spec(config, cell))
        try:
            found[cell.name] = _needs_of(jobs.job(config, cell, records, model_file, spec))
        except UserError as error:
            found[cell.name] = Needs(unknown=str(error))
    return found


def _needs_of(job: Job) -> Needs:
    from longflow.cell_run import CellRun
    from longflow.engines import load_engine

    journal = Journal(job.journal)
    journal.renderings = renderings = _Noting(journal.renderings)
    journal.answers = answers = _Noting(journal.answers)
    run = CellRun(job, journal, load_engine(job.entry["engine"], job.entry, job.model.get("location")))
    unknown = None
    for turn in range(run.turns.count):
        total, known = run.count(turn)
        last = turn == run.turns.count - 1
        # A failed record of the last turn asks for an answer that is not there, but one knows for which.
        if not renderings.asked <= renderings.keys() or (known < total and not last):
            unknown = "it was not run to its end with this configuration"
            break
        if not last:
            for _ in run.requests(turn):  # all are answered; the next turn builds on the answers
                pass
    return Needs(renderings.asked, answers.asked, unknown, digest(job.model["identity"])[:8])


@dataclass
class Plan:
    """What pruning a cell's journal would do.

    Attributes:
        free: segments to be put into one, with the bytes of each that were read.
        keep: the lines of them that stay.
        dropped_answers, dropped_renderings: how many lines are not needed.
        torn: torn or foreign lines, and repeated ones.
        running: segments left alone, since they may be written to.
        whole: why nothing but torn and repeated lines goes, or None.
        bytes: of the segments that go.
    """

    cell: str
    free: dict[Path, int] = field(default_factory=dict)
    keep: list[Line] = field(default_factory=list)
    dropped_answers: int = 0
    dropped_renderings: int = 0
    torn: int = 0
    running: int = 0
    whole: str | None = None
    bytes: int = 0

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        loose = len(self.free) > 1 or any(path.name.endswith(TAKEN) for path in self.free)
        return bool(loose or self.dropped_answers or self.dropped_renderings or self.torn)


def plan(root: str | Path, wanted: Mapping[str, Needs], other_cells: bool = False) -> list[Plan]:
    """What pruning would do to each cell's journal; nothing is changed. Raises UserError.

    Args:
        root: the journal.
        wanted: what the current configuration needs (`needs`).
        other_cells: whether the journals of cells that this configuration does not have go altogether; otherwise they
            are only put into one segment each.
    """
    found = []
    for cell in find_cells(root):
        need = wanted.get(cell, Needs() if other_cells else Needs(unknown="no cell of this configuration"))
        made = Plan(cell, whole=need.unknown)
        seen = set()
        for path in segments(Path(root) / cell):
            running = may_be_written(path)
            made.running += running
            kept = []
            size = 0
            with open(path, "rb") as stream:
                for raw in stream:
                    size += len(raw)
                    line = parse(raw, path)
                    name = None if line is None else (type(line), line.key if isinstance(line, Answer) else line.id)
                    first = name not in seen
                    seen.add(name)
                    if running:
                        continue
                    if line is None or not first:
                        made.torn += 1
                    elif made.whole is not None or _needed(line, need):
                        kept.append(line)
                    elif isinstance(line, Answer):
                        made.dropped_answers += 1
                    else:
                        made.dropped_renderings += 1
            if not running:
                made.free[path] = size
                made.bytes += size
                made.keep += kept
        found.append(made)
    return found


def _needed(line: Line, need: Needs) -> bool:
    return line.key in need.answers if isinstance(line, Answer) else line.id in need.renderings


_NAME = re.compile(r"(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{8}\.jsonl")


def may_be_written(path: Path) -> bool:
    """Whether a running process may still write to a segment.

    Of this host's processes it is known. Others are given an hour (`IDLE`) since their last line. A writer that is
    wronged by this finds its segment gone and begins another, so that nothing is lost (`Journal.add`).
    """
    if path.name.startswith(COMPACTED) or path.name.endswith(TAKEN):
        return False
    try:
        idle = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    match = _NAME.fullmatch(path.name)
    if match is not None and match["host"] == socket.gethostname() and not _alive(int(match["pid"])):
        return False
    return idle < IDLE


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def prune(root: str | Path, plans: Iterable[Plan]) -> None:
    """Do what was planned. Killed at any moment, it has lost no line that was to stay; do it again then.

    The lines that stay are on disk in a new segment before the old ones lose their names, and what a writer added to
    those meanwhile is saved before they go.
    """
    for each in plans:
        if not each.changes:
            continue
        folder = Path(root) / each.cell
        if each.keep:
            write_segment(folder, each.keep, COMPACTED)
        taken = []
        for path in each.free:
            away = path if path.name.endswith(TAKEN) else path.with_name(path.name + TAKEN)
            # Gone already if two people prune at once: whoever took it saves what was added.
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, away)
                taken.append((away, each.free[path]))
        late = [line for path, size in taken for line in _after(path, size)]
        if late:
            write_segment(folder, late)
        sync_folder(folder)
        for path, _ in taken:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        _remove_empty(folder, Path(root))


def _after(path: Path, size: int) -> Iterator[Line]:
    """The lines of a segment behind its first `size` bytes."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as stream:
        stream.seek(size)
        for raw in stream:
            line = parse(raw, path)
            if line is not None:
                yield line


def _remove_empty(folder: Path, root: Path) -> None:
    while folder != root:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def plan_text(plans: Sequence[Plan], done: bool) -> str:
    """What pruning does or did, a line a cell that it concerns."""
    would = "" if done else "would "
    lines = []
    for each in plans:
        said = []
        if each.changes:
            files = f"{len(each.free)} file{'s' * (len(each.free) != 1)}"
            said.append(f"{files} of {each.bytes:,} bytes {would}become {1 if each.keep else 0}")
            gone = {"answers": each.dropped_answers, "renderings": each.dropped_renderings}
            gone["torn, foreign or repeated lines"] = each.torn
            said += [f"{n:,} {what} {would}go" for what, n in gone.items() if n]
        if each.whole is not None:
            said.append(f"no answer goes: {each.whole}")
        if each.running:
            said.append(f"{each.running} that may be written to stay as they are")
        if said:
            lines.append(f"{each.cell}: {'; '.join(said)}")
    answers = sum(each.dropped_answers for each in plans)
    if any(each.changes for each in plans):
        lines.append(f"in all, {answers:,} answers {would}go" + ("" if done else "; add --yes to do it"))
    else:
        lines.append("nothing to do")
    return "\n".join(lines)
