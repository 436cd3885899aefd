"""The anatomy of a cell: what became of each record, why, and where its evidence was.

Predictions and scores go in, and with them the records, if they are there, and the scores of the same questions asked
without context; a row a record and a summary come out. Scores are read and never changed.

- `cell` goes through a cell; `run` writes its files.
- `fate`: flags and labels. `evidence`: places and truncation. `slices`: counts, and what puts cells together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from longflow.anatomy import evidence as places
from longflow.anatomy.fate import FLAGS, LABELS, RIGHT, STATES, Case, flags, label
from longflow.anatomy.slices import TABLE_SLICES, Counts, marks, slices_of
from longflow.errors import UserError
from longflow.jsonio import atomic_write, dump_line, read_jsonl, write_json
from longflow.records import Record, read_records

__all__ = ["FLAGS", "LABELS", "RIGHT", "STATES", "Anatomy", "cell", "marks", "run"]

Row = Mapping[str, Any]

NAMED = ("benchmark", "model", "setting", "dataset", "length", "metric", "language", "category")
"""Keys of a spec that its summary repeats."""


class Anatomy:
    """Goes through a cell once; see `cell`. Iterate over it, then ask for the `summary`."""

    def __init__(
        self,
        predictions: str | Path,
        scores: str | Path,
        records: str | Path | None,
        no_context: str | Path | None,
        spec: Mapping[str, Any],
    ) -> None:
        self._predictions = predictions
        self._scores = scores
        self._records = records
        self._spec = spec
        self._marks: Mapping[str, Any] = spec.get("marks") or {}
        self._blind = _without_context(no_context) if no_context is not None else {}
        self._counts = Counts(bool(self._marks.get("asked")))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        records = _Follower(self._records) if self._records is not None else None
        found: tuple[str, places.Evidence] | None = None
        for row, line in _paired(self._predictions, self._scores):
            record = records.at(str(line["id"]), str(self._predictions)) if records is not None else None
            if record is None:
                sought = places.Evidence(None, "the records are not at hand")
            elif found is not None and found[0] == record.id:  # the same record, answered again
                sought = found[1]
            else:
                sought = places.find(record, self._keywords(row), _question(row), str(self._spec["language"]))
                found = (record.id, sought)
            made = self._row(row, line, record, sought)
            self._counts.add(made)
            yield made

    def summary(self) -> dict[str, Any]:
        """The cell's names and marks, and the counts of the rows so far (see `slices.Counts.to_json`)."""
        return {
            **{name: self._spec[name] for name in NAMED},
            "marks": {name: self._marks.get(name) for name in TABLE_SLICES},
            **self._counts.to_json(),
        }

    def _truths(self, row: Row) -> list[str]:
        answers = row.get("answers")
        found = [text for text in answers if isinstance(text, str)] if isinstance(answers, list) else []
        return found if self._spec.get("answers") == "best" else found[:1]

    def _keywords(self, row: Row) -> list[str]:
        """What to seek in a context: short answers and paragraphs' names; not letters, classes, summaries or code."""
        metric = str(self._spec["metric"])
        wanted = metric.startswith(("qa_f1", "retrieval")) or "QA" in str(self._spec["category"])
        if not wanted or metric == "choice":
            return []
        keyword = row.get("gold_ans")
        return [*([keyword] if isinstance(keyword, str) and keyword else []), *self._truths(row)]

    def _row(self, row: Row, line: Row, record: Record | None, sought: places.Evidence) -> dict[str, Any]:
        if record is None:
            kept, cut = None, _cut_without_records(row)
        else:
            kept, why = places.kept_part(row, record, self._spec.get("prompt"))
            cut = places.cut_away(sought, kept, why)
        scores, rotations = self._blind.get(str(line.get("question_id")), (None, 1))
        keyword = row.get("gold_ans")
        case = Case(
            row=row,
            line=line,
            truths=self._truths(row),
            keywords=keyword if isinstance(keyword, str) else None,
            metric=str(self._spec["metric"]),
            language=str(self._spec["language"]),
            asked=bool(self._marks.get("asked")),
            clean=self._spec.get("clean"),
            evidence=() if record is None else places.around(record, sought),
            cut=cut,
            blind=scores,
            rotations=rotations,
        )
        found = flags(case)
        length = 0 if record is None else len(str(record.fields.get("context") or ""))
        blind = None if not scores or None in scores else min(score for score in scores if score is not None)
        return {
            "id": line["id"],
            "question_id": line.get("question_id"),
            **({"repeat": row["repeat"]} if "repeat" in row else {}),
            "length": self._spec["length"],
            "score": line["score"],
            "label": label(case, found),
            "flags": {name: flag.to_row() for name, flag in found.items()},
            "position": places.position(sought, kept, length).to_row(),
            "evidence": {"how": sought.how, "why": sought.why},
            "blind": {"score": blind, "right": "unknown" if blind is None else "right" if blind >= RIGHT else "wrong"},
            "slices": slices_of(row, line, cut[0], found["known"].state),
            "excerpts": [] if record is None else places.excerpts(record, sought, kept),
        }


def cell(
    predictions: str | Path,
    scores: str | Path,
    records: str | Path | None,
    no_context: str | Path | None,
    spec: Mapping[str, Any],
) -> Anatomy:
    """The anatomy of a cell: an iterator over one row a record, with a `summary()` once it has been gone through.

    Args:
        predictions: the cell's predictions file.
        scores: its scores, one line a record.
        records: the records that the predictions were made of; None where they are not at hand (predictions made
            elsewhere): what needs the context then cannot be told.
        no_context: the scores of the same model and data set in a setting of the kind `no_context`, one line a record;
            None if there is none. Questions are matched by `question_id`, so that any length's will do.
        spec: names the cell (benchmark, model, setting, dataset, length, metric, language, category), and has
            `answers` and `clean` as the scorer's spec has, `prompt` (the template; None if records bring their own) and
            `marks` (see `slices.marks`).

    A row has id, question_id, length, score, label (see `fate.LABELS`), flags (name -> state and why), position
    (before and after truncation, 0 to 1, None if unknown), evidence (how it was found), blind (the score without
    context), slices and excerpts (at most three windows of context). Raises UserError for files that do not belong
    together.
    """
    return Anatomy(predictions, scores, records, no_context, spec)


def run(
    predictions: str | Path,
    scores: str | Path,
    records: str | Path | None,
    no_context: str | Path | None,
    spec: Mapping[str, Any],
    rows_path: str | Path,
    summary_path: str | Path,
) -> dict[str, Any]:
    """Write the anatomy of a cell, a JSONL file of its rows and a JSON summary, which is also returned.

    Each file appears whole or not at all, and their bytes depend on the inputs alone. Raises UserError.
    """
    made = cell(predictions, scores, records, no_context, spec)
    with atomic_write(rows_path) as stream:
        for row in made:
            stream.write(dump_line(row))
    summary = made.summary()
    write_json(summary_path, summary)
    return summary


def _question(row: Row) -> str:
    return str(row.get("input") or row.get("question") or "")


def _paired(predictions: str | Path, scores: str | Path) -> Iterator[tuple[Row, Row]]:
    """Each row of a predictions file with its line of scores; rows that the scorer left out as doubles are passed over.

    Raises UserError if the scores are not of these predictions.
    """
    lines = read_jsonl(scores)
    line = next(lines, None)
    for index, row in enumerate(read_jsonl(predictions)):
        if line is not None and line["id"] == str(row.get("id", row.get("_id", index))):
            yield row, line
            line = next(lines, None)
    if line is not None:
        raise UserError(f"{scores}: has a score of record {line['id']}, which {predictions} does not have; score again")


class _Follower:
    """Reads a records file in step with its predictions, so that one context is held at a time."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._records = read_records(path)
        self._now: Record | None = None

    def at(self, name: str, predictions: str) -> Record:
        """The record of an id, which has to be the current one or a later one. Raises UserError."""
        while self._now is None or self._now.id != name:
            try:
                self._now = next(self._records)
            except StopIteration:
                raise UserError(
                    f"{self._path}: has no record {name} where {predictions} has one; prepare and predict again"
                ) from None
        return self._now


def _without_context(path: str | Path) -> dict[str, tuple[list[float | None], int]]:
    """Question -> the scores it has without context, and in how many rotations of its options it was asked."""
    scores: dict[str, list[float | None]] = {}
    rotations: dict[str, set[int]] = {}
    for line in read_jsonl(path):
        name = str(line.get("question_id"))
        scores.setdefault(name, []).append(line.get("score"))
        rotations.setdefault(name, set()).add(int(line.get("rotation") or 0))
    return {name: (found, len(rotations[name])) for name, found in scores.items()}


def _cut_without_records(row: Row) -> tuple[str, str]:
    """Whether the evidence was cut away, as far as that is told without the records."""
    if "kept_head" not in row:
        return "unknown", "the predictions were made elsewhere and do not say what was sent"
    if row["kept_head"] is None:
        return "no", "nothing was cut"
    spans: Sequence[Sequence[int]] = row.get("evidence") or []
    start = row.get("context_start")
    if spans and start is not None and all(start + end <= row["kept_head"] for _, end in spans):
        return "no", "all of it stands before the cut"
    return "unknown", "the records are not at hand"
