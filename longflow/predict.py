"""The loop: records -> requests -> engine -> journal -> predictions.

This and `score.py` are the only places where benchmarks, engines and metrics meet. A job answers one cell, several of
one model with a single model load (a batch), or a part of one cell's records (a shard).
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import resource
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longflow import batch_files
from longflow.cell_run import CellRun, Job, checked_answer
from longflow.engines import Completion, Engine, Request, load_engine
from longflow.errors import UserError
from longflow.journal import Answer, Journal
from longflow.jsonio import read_json, write_json, write_jsonl
from longflow.pricing import cost
from longflow.progress import Progress
from longflow.shards import deal
from longflow.specs import disown, write_spec

log = logging.getLogger("longflow")


@dataclass(frozen=True)
class Place:
    """Where the files of a cell go: its predictions, what they cost, and the spec whose digest stands beside them."""

    predictions: str
    usage: str
    spec: str | None = None


class Desk:
    """Hands the requests of several cells to one engine, and each answer to the cells that asked for it.

    Two cells may ask the same thing: without a context, a question is one question at every length.

    Args:
        cells: the cells.
        libraries: what makes the answers, for the protocol.
        apart: whether what is wrong with one cell (a UserError) ends that cell and not the others.
    """

    def __init__(self, cells: Sequence[CellRun], libraries: str, apart: bool = False) -> None:
        self.cells = cells
        self.libraries = libraries
        self.apart = apart
        self.generated = dict.fromkeys((cell.job.name for cell in cells), 0)
        self._answers: dict[str, Answer] = {}
        self._failures: dict[str, str] = {}
        self._waiting: dict[str, list[CellRun]] = {}
        self._done: set[str] = set()
        self._progress: dict[str, Progress] = {}

    def turn(self, turn: int, engine: Engine, cells: Sequence[CellRun]) -> None:
        """Have all requests of a turn answered. Raises UserError for an engine that is not one."""
        for cell in cells:
            with self.faults_of(cell):
                total, known = cell.count(turn)
                part = f" (turn {turn + 1} of {cell.turns.count})" if cell.turns.count > 1 else ""
                log.info("%s%s: %d calls, %d answered before", cell.job.name, part, total, known)
                self._progress[cell.job.name] = Progress(cell.job.name + part, total, known)
        requests = self._requests(turn, cells)
        name = cells[0].job.entry["engine"]
        found = engine.generate(requests)
        if not hasattr(found, "__iter__"):
            raise UserError(
                f"{cells[0].job.name}: engine {name!r}: generate() returned {found!r}; it has to yield completions"
            )
        for completion in found:
            self._deliver(completion, f"{cells[0].job.name}: engine {name!r}")
        # An engine that took fewer requests than there are leaves records that were never looked at.
        for _ in requests:
            pass

    @contextmanager
    def faults_of(self, cell: CellRun) -> Iterator[None]:
        """What is wrong with a cell is that cell's fault, where cells stand apart; else it is raised."""
        try:
            yield
        except UserError as error:
            if not self.apart:
                raise
            cell.fault = str(error)
            cell.stopped = True

    def _requests(self, turn: int, cells: Sequence[CellRun]) -> Iterator[Request]:
        for cell in cells:
            with self.faults_of(cell):
                yield from self._requests_of(turn, cell)

    def _requests_of(self, turn: int, cell: CellRun) -> Iterator[Request]:
        for request in cell.requests(turn):
            if (answer := self._answers.get(request.key)) is not None:
                cell.take(answer)
            elif (reason := self._failures.get(request.key)) is not None:
                self._failed(cell, request.key, reason)
            elif request.key in self._waiting:
                self._waiting[request.key].append(cell)
            else:
                self._waiting[request.key] = [cell]
                yield request

    def _deliver(self, completion: Completion, engine: str) -> None:
        if not isinstance(completion, Completion):
            raise UserError(f"{engine} gave a {type(completion).__name__}; generate() has to yield Completion objects")
        cells = self._waiting.pop(completion.key, None)
        if cells is None:
            if completion.key in self._done:
                return  # the first answer counts
            raise UserError(
                f"{engine} answered a request it was not asked (key {str(completion.key)[:12]}…); a completion carries "
                "the key of its request"
            )
        self._done.add(completion.key)
        answer = checked_answer(completion, self.libraries, engine)
        if answer is None:
            self._failures[completion.key] = reason = str(completion.error or "no reason given")
            for cell in cells:
                self._failed(cell, completion.key, reason)
            return
        if len(self.cells) > 1:
            self._answers[answer.key] = answer
        for number, cell in enumerate(cells):
            cell.take(answer)
            if number == 0:
                self.generated[cell.job.name] += 1
                if answer.note:
                    log.info("%s: %s", cell.job.name, answer.note)
            self._progress[cell.job.name].step(answer.prompt_tokens, answer.answer_tokens)

    def _failed(self, cell: CellRun, key: str, reason: str) -> None:
        cell.fail(key, reason)
        name = cell.job.name
        self._progress[name].step(None, None)
        log.info("%s: a record failed: %s", name, cell.failures[key])
        # Of a share only the whole cell can tell: a shard leaves it to `assemble`.
        judged = cell.chosen is None or not _is_share(cell.job.max_failures)
        if judged and _too_many(cell.job.max_failures, cell.failed_records, cell.total):
            cell.stopped = True  # and is never taken back: a cell with a fault is stopped as well


def _is_share(limit: float | None) -> bool:
    return limit is not None and 0 < limit < 1


def _too_many(limit: float | None, failed: int, total: int) -> bool:
    """Whether more of `total` records failed than a limit allows: a number of them, or a share."""
    return limit is not None and failed > (limit * total if _is_share(limit) else limit)


def libraries(engine: str) -> str:
    """The versions that make an engine's answers, for the protocol."""
    names = {"transformers": ("transformers", "torch", "tokenizers"), "openai": ("openai",)}.get(engine, ())
    return ", ".join([f"{name} {importlib.metadata.version(name)}" for name in names])


def run(job: Job, output: str | Path, usage: str | Path, spec: str | None = None) -> dict[str, int]:
    """Answer every record of a cell and write its predictions, whole or not at all.

    Answers that the journal holds are taken from there; if it holds all of them no model is loaded, and often no
    tokenizer either. Whatever ends this early leaves in the journal all that was answered.

    Returns the counts of records, of requests generated here, and of failed records. Raises UserError for what a person
    can mend, also if too many records failed.
    """
    ((counts, fault),) = _run_all([job], [Place(str(output), str(usage), spec)], apart=False)
    if fault is not None:
        raise UserError(fault)
    return counts


def run_batch(jobs: Sequence[Job], places: Sequence[Place]) -> dict[str, str]:
    """Answer every record of some cells of one model, which is loaded once, and write a file for each, as `run` does.

    A cell that can have no predictions (too many of its records failed, or there is something wrong with it) takes no
    other along: its file is a line that says why, disowned so that the next run tries it again.

    Returns the faults, by cell. Raises UserError for what is wrong with all of them, such as a model that is not there.
    """
    faults = {}
    for job, place, (_, fault) in zip(jobs, places, _run_all(jobs, places, apart=True), strict=True):
        if fault is not None:
            log.error("%s", fault)
            faults[job.name] = fault
            batch_files.write_fault(place.predictions, fault)
    return faults


def _run_all(jobs: Sequence[Job], places: Sequence[Place], apart: bool) -> list[tuple[dict[str, int], str | None]]:
    """The counts of each cell, whose predictions are written, or why it has none."""
    began = time.monotonic()
    engine = _engine(jobs[0])
    found: list[tuple[dict[str, int], str | None]] = []
    with ExitStack() as stack:
        cells = [CellRun(job, _open(stack, job), engine) for job in jobs]
        desk = Desk(cells, libraries(jobs[0].entry["engine"]), apart)
        _answer_all(desk, engine, cells)
        for cell, place in zip(cells, places, strict=True):
            counts: dict[str, int] = {}
            if _fault(cell) is None:
                with desk.faults_of(cell):
                    counts = write(cell, place, desk.generated[cell.job.name], began, engine)
            found.append((counts, _fault(cell)))
    return found


def run_shard(job: Job, shard: int, shards: int, output: str | Path) -> dict[str, Any]:
    """Answer a shard of a cell's records into the journal, and write what failed and what it cost.

    Args:
        job: the cell.
        shard: which one, from 0.
        shards: how many there are.
        output: a JSON file with the shard's counts and, by request key, the reasons of what failed.
    """
    began = time.monotonic()
    engine = _engine(job)
    with ExitStack() as stack:
        chosen = deal(job.records, job.spec, shards)[shard]
        cell = CellRun(job, _open(stack, job), engine, chosen)
        desk = Desk([cell], libraries(job.entry["engine"]))
        _answer_all(desk, engine, [cell])
        if cell.stopped:
            raise UserError(_stopped(cell))
        value = {
            "cell": job.name,
            "shard": shard,
            "shards": shards,
            "records": len(cell.rows),
            "failures": cell.failures,
            **_spent(cell, desk.generated[job.name], began, engine),
        }
    write_json(output, value)
    return value


def assemble(job: Job, shards: Sequence[str | Path], place: Place) -> dict[str, int]:
    """Write a cell's predictions out of the journal, which the shards have filled. No engine generates anything.

    Args:
        job: the cell.
        shards: the files that `run_shard` wrote. If the cell turns out to have no predictions they are disowned, so
            that the next run tries what failed again.
        place: where the predictions go.

    Raises UserError if too many records failed, or if the journal lacks an answer that no shard names as failed.
    """
    began = time.monotonic()
    parts = [read_json(path) for path in shards]
    engine = _engine(job)
    with ExitStack() as stack:
        cell = CellRun(job, _open(stack, job), engine)
        failures = {key: reason for part in parts for key, reason in part["failures"].items()}
        try:
            for turn in range(cell.turns.count):
                for request in cell.requests(turn):
                    if request.key not in failures:
                        raise UserError(
                            f"{job.name}, record {request.name}: no shard has answered it; the journal may have been "
                            "removed, so the next run does the shards again"
                        )
                    cell.fail(request.key, failures[request.key])
            cell.stopped = _too_many(job.max_failures, cell.failed_records, len(cell.rows))
            if fault := _fault(cell):
                raise UserError(fault)
        except UserError:
            for path in shards:
                disown(path)
            raise
        return write(cell, place, sum(int(part.get("generated_here", 0)) for part in parts), began, engine)


def _engine(job: Job) -> Engine:
    return load_engine(job.entry["engine"], job.entry, job.model.get("location"))


def _open(stack: ExitStack, job: Job) -> Journal:
    journal = stack.enter_context(Journal(job.journal))
    if journal.dropped:
        log.info("%s: %d torn or foreign lines of the journal were passed over", job.name, journal.dropped)
    return journal


def _answer_all(desk: Desk, engine: Engine, cells: Sequence[CellRun]) -> None:
    try:
        for turn in range(max(cell.turns.count for cell in cells)):
            if asking := [cell for cell in cells if turn < cell.turns.count and not cell.stopped]:
                desk.turn(turn, engine, asking)
    finally:
        engine.close()


def _fault(cell: CellRun) -> str | None:
    """Why a cell has no predictions: something is wrong with it, it was stopped, or nothing of it was answered."""
    if cell.fault is not None:
        return cell.fault
    if cell.stopped:
        return _stopped(cell)
    keys = [row.rendering.key for row in cell.rows]
    if keys and not any(key in cell.journal.answers for key in keys):
        first = cell.failures.get(keys[0], "the engine gave no answer")
        return f"{cell.job.name}: every one of its {len(keys)} records failed; the first: {first}"
    return None


def _stopped(cell: CellRun) -> str:
    reason = next(iter(cell.failures.values()))
    return (
        f"{cell.job.name}: {cell.failed_records} records failed, more than run.max_failures: {cell.job.max_failures}; "
        f"what was answered is kept; the first failure: {reason}"
    )


def write(cell: CellRun, place: Place, generated: int, began: float, engine: Engine) -> dict[str, int]:
    """Write a cell's predictions and what they cost. Returns its counts."""
    failed = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal failed
        for prediction in cell.predictions():
            failed += prediction.error is not None
            yield prediction.to_row()

    write_jsonl(place.predictions, rows())
    spent = _spent(cell, generated, began, engine)
    write_json(place.usage, {"cell": cell.job.name, "records": len(cell.rows), "failed": failed, **spent})
    if place.spec is not None:
        write_spec(place.predictions, place.spec)
    log.info("%s: done, %d records, %d generated, %d failed", cell.job.name, len(cell.rows), generated, failed)
    return {"records": len(cell.rows), "generated": generated, "failed": failed}


def _spent(cell: CellRun, generated: int, began: float, engine: Engine) -> dict[str, Any]:
    """What a cell's answers cost, those from the journal included, and on what they were made here."""
    answers = [cell.journal.answers[key] for key in cell.used if key in cell.journal.answers]
    tokens = {
        name: sum(getattr(answer, name) or 0 for answer in answers)
        for name in ("prompt_tokens", "cached_tokens", "answer_tokens")
    }
    price = cell.job.entry.get("price")
    return {
        "calls": len(cell.used),
        "generated_here": generated,
        **tokens,
        "cost": None if price is None else round(cost(price, *tokens.values()), 6),
        "generation_seconds": round(sum(answer.seconds or 0 for answer in answers), 1),
        "job_seconds": round(time.monotonic() - began, 1),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "peak_device_mb": getattr(engine, "peak_device_mb", None),
        "libraries": sorted({answer.libraries for answer in answers}),
        "notes": sorted({answer.note for answer in answers if answer.note}),
        "host": socket.gethostname(),
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
