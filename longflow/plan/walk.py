"""The calls that a cell would make, found by the code that a run uses, without an engine; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from longflow.cell_run import CellRun, Job
from longflow.engines import Completion, Request, Tokenizer
from longflow.errors import UserError
from longflow.journal import Journal, Line, Rendering
from longflow.jsonio import digest
from longflow.prompts import render
from longflow.records import Record
from longflow.turns import Call


class Teller:
    """Stands where a run has its engine: it has a tokenizer, made when it is first asked for, and answers nothing."""

    def __init__(self, make: Callable[[], Tokenizer | None]) -> None:
        self._make = make
        self._made: Tokenizer | None = None
        self._done = False

    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer."""
        if not self._done:
            self._made, self._done = self._make(), True
        return self._made

    def generate(self, requests: Any) -> Iterator[Completion]:
        """Never asked."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to give back."""


class ReadOnlyJournal(Journal):
    """A journal that is read and never written."""

    def add(self, line: Line) -> None:
        """Keep a line in memory alone."""
        self._hold(line)


@dataclass(frozen=True)
class Step:
    """A call: the tokens of its prompt if the journal answers it, else its request.

    `owed` are tokens that the prompt will have beside what it has now: answers to earlier calls that are not there yet.
    """

    answered: int | None
    request: Request | None
    cut: bool = False
    owed: int = 0


class Walk(CellRun):
    """A cell's run up to its requests.

    Args:
        job: the cell.
        journal: what is known already; nothing is written to it.
        teller: gives the tokenizer.
        records: gives the records, which need not be in the job's file.
        exact: whether prompts are cut and wrapped as they are sent; otherwise a request has the whole prompt's text and
            no tokenizer is needed.
    """

    def __init__(
        self,
        job: Job,
        journal: ReadOnlyJournal,
        teller: Teller,
        records: Callable[[], Iterator[Record]],
        exact: bool,
    ) -> None:
        super().__init__(job, journal, teller)
        self._source = records
        self._exact = exact
        self._limits: dict[tuple[int, int], list[int]] = {}

    def steps(self) -> Iterator[Step]:
        """The calls of all turns; equal ones within the cell once. Raises UserError naming the record."""
        seen: set[str] = set()
        for turn in range(self.turns.count):
            for index, record in self._records():
                for repeat in range(self.repeats):
                    yield from self._turn(turn, index, record, repeat, seen)

    def _turn(self, turn: int, index: int, record: Record, repeat: int, seen: set[str]) -> Iterator[Step]:
        answers, place = self.journal.answers, (index, repeat)
        earlier = self._calls.setdefault(place, [])
        texts = [[self._said(rendering) for rendering in calls] for calls in earlier]
        owed = sum(
            limit
            for rendering, limit in zip(earlier[-1] if earlier else [], self._limits.get(place, []), strict=True)
            if rendering.key not in answers
        )
        found, limits = [], []
        for number, call in enumerate(self._calls_of(turn, record, texts)):
            rendering, request = self._rendered(index, record, call, (turn, number, repeat))
            found.append(rendering)
            limits.append(self._generation(record, call, turn, repeat).max_new_tokens)
            if rendering.key in seen:
                continue
            seen.add(rendering.key)
            if request is None:
                yield Step(answers[rendering.key].prompt_tokens or 0, None)
            else:
                yield Step(None, request, rendering.kept_head is not None, owed)
        earlier.append(found)
        self._limits[place] = limits

    def _said(self, rendering: Rendering) -> str:
        answer = self.journal.answers.get(rendering.key)
        return "" if answer is None else self._on_the_way(answer)[0]

    def _records(self) -> Iterator[tuple[int, Record]]:
        yield from enumerate(self._source())

    def _render(self, name: str, record: Record, call: Call, place: tuple[int, int, int]) -> tuple[Rendering, Request]:
        if self._exact:
            return super()._render(name, record, call, place)
        try:
            text, _ = render(call.template, call.fields)
        except UserError as error:
            raise UserError(f"{self.job.records}, record {record.id}: {error}") from error
        generation = self._generation(record, call, place[0], place[2])
        key = digest([text, generation.to_spec(), place[2]])
        return Rendering(name, key, None, None, None, None), Request(key, text, True, generation, record.id)
