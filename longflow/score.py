"""Scores: a predictions file in; a line a record and a summary out.

The rules are those of the references' scripts: evaluation.py of infinigence/LVEval at
63e7ae939bd347c76b2cdb1cebfb216faca26897; eval.py (LongBench, LongBench-E) and result.py (LongBench v2) of
THUDM/LongBench at 2e00731f8d0bff23dc4325161044d0ed8af94c1e. A score starts at 0 and is that of the first answer
(LV-Eval) or of the best one; the sum is taken in file order in plain floats and the mean rounded by Python's `round`
to two decimals of a percentage; LongBench-E takes numpy's mean and numpy's rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from longflow.errors import UserError
from longflow.jsonio import atomic_write, digest, dump_line, read_jsonl, write_json
from longflow.metrics import UNPARSED, Context, Outcome, metric
from longflow.metrics.rows import Row, RowError, text_or_null, texts
from longflow.metrics.tally import Repeats, Tally, percentage
from longflow.records import question_id

FAILED = "failed"
"""Flag of a record for which there is no answer: the engine failed, or the row has no `pred`."""

CHOICES: dict[str, tuple[str | None, ...]] = {
    "answers": ("first", "best"),
    "clean": (None, "first_line"),
    "rounding": ("python", "numpy"),
    "rows": ("all", "distinct"),
}
"""What a spec may choose about scoring; the first of each is the default."""

_CELL = ("benchmark", "model", "setting", "dataset", "length", "metric", "language", "category")
_FLAGS = ("keywords_empty", "rouge_overflow", "truth_unreadable", "unparsed")
_COUNTS = ("truncated", "empty", "failed", "gated", *_FLAGS, "ran_out", "reasoning_open", "ungrouped", "duplicates")

GroupsOf = Callable[[Row], Sequence[str]]


class CellScorer:
    """Scores one cell, row by row.

    `spec` names the cell (benchmark, model, setting, dataset, length, metric, language, category), says how many
    records it should have (`n_expected`; in each group: `groups`) and how to score: `answers` (`first`, or `best` over
    all of them), `clean` (None, or `first_line`: of an answer only its first line that is not empty counts), `rounding`
    (`python` or `numpy`), `rows` (`all`, or `distinct`: rows equal in all they hold are taken once), `rouge_overflow`
    and `code_similarity`; what is absent has its default. `where` names the file in errors. `all_classes` are the
    classes of a classification (see `classes_of`).

    Where each record was answered several times, `repeats` is how often, `n_expected` and `groups` count the answers to
    all of them, and each row says in `repeat` which answer it is (0, 1, ...). A file whose rows tell of more repeats
    than the spec is expected to have them all.

    The groups of a row are told by the function `groups_of` of the benchmark's module, where it has one.
    """

    def __init__(
        self, spec: Mapping[str, Any], where: str = "predictions", all_classes: Sequence[str] | None = None
    ) -> None:
        self._metric = metric(spec["metric"])  # an unknown name is an error even where there is nothing to score
        self._spec = spec
        self._where = where
        self._answers, self._clean, self._rounding, self._which = (_chosen(spec, name) for name in CHOICES)
        self._groups_of = _groups_of(spec["benchmark"])
        self._all_classes = all_classes
        self._options = {name: spec[name] for name in ("rouge_overflow", "code_similarity") if name in spec}
        Context(**self._options)
        self._seen: set[str] = set()
        self._cell = Tally()
        self._plain_total = 0.0
        self._expected = {name: int(n) for name, n in dict(spec.get("groups") or {}).items()}
        self._groups = {name: Tally() for name in self._expected}
        self._rows = 0
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._with_keywords = 0
        self._repeats = Repeats(int(spec.get("repeats", 1)))
        self._sent_rows = 0
        self._sent_total = 0
        self._sent_max: int | None = None

    def add(self, row: Row) -> dict[str, Any] | None:
        """Score one row of a predictions file; the row needs the reference's keys at most.

        Returns the line of the scores file: id, question_id, repeat if the row has it, score and plain (0 to 1,
        unrounded; None where there was no answer), gated, flags, and groups if the benchmark has any; or None for a row
        that is left out because it equals an earlier one. A row without `pred` counts as failed and not as scored; one
        with `pred` and `error` counts as both, as the reference would score its empty text. Raises UserError naming
        file, row and key.
        """
        index = self._rows
        self._rows += 1
        again = self._repeated(row)
        if again and self._which == "distinct":
            return None
        failed = bool(row.get("error"))
        try:
            repeat = self._repeats.of(row)
            outcome = (self._metric.measure_row or self._measure_text)(row)
        except RowError as error:
            raise UserError(f"{self._where}, row {index + 1}: {error}") from None
        groups = self._groups_for(row)
        self._count("failed", failed or outcome is None)
        self._count("truncated", row.get("kept_head") is not None)
        self._count("ran_out", row.get("finish_reason") == "length")
        self._count("reasoning_open", row.get("reasoning_closed") is False)
        self._add_sent(row.get("sent_tokens"))
        if outcome is not None:
            self._add_outcome(outcome, repeat, groups, again)
            self._with_keywords += bool(row.get("gold_ans"))
            self._count("empty", not failed and _blank(row))
        return self._line(row, index, outcome, groups, again)

    def summary(self) -> dict[str, Any]:
        """The cell's summary so far.

        `score` is what the reference prints for the rows that have an answer, None if there are none (the reference
        ends with an error); `score_expected` divides by the records there should be, so that missing and failed ones
        count 0, or by those there are if there are more; of more rows than expected, equal ones count once.
        Both are percentages with two decimals, as is `plain`, the
        mean without the keyword gate; `total` and `plain_total` are the sums behind them, unrounded. `rows` counts all
        rows found, `n` those that were scored. `groups` has score, score_expected, total, n and n_expected of each
        group, in the order of the spec; a group that the spec does not know is expected to have the rows that were
        found.

        A metric that one can guess at has, in a cell and its groups, `compensated` and `compensated_expected`, in which
        unparsed answers score as a guess would, and missing or failed ones 0; and `bounds`, the least and the highest
        score over the records expected: with every missing or failed one wrong, and with all of them right.

        Of several answers to each record `repeats` has their number `n`, the `scores` of each repeat (over its rows)
        and `scores_expected`, and the sample standard deviation `sd`, `low` and `high` of those over the records
        expected (None with fewer than two scores).
        """
        n, expected = self._cell.n, self._repeats.scaled(int(self._spec["n_expected"]))
        figures = self._cell.figures(expected, self._rounding, self._metric.chance)
        total = figures.pop("total")
        return {
            **{key: self._spec[key] for key in _CELL},
            **figures,
            "plain": percentage(self._plain_total, n),
            "total": total,
            "plain_total": self._plain_total,
            "rows": self._rows,
            "n": n,
            "n_expected": expected,
            **({"repeats": self._repeats.spread(expected, self._rounding)} if self._repeats.times > 1 else {}),
            "groups": {name: self._group(name, tally) for name, tally in self._groups.items()},
            "counts": dict(self._counts),
            "answer_keywords": {"present": self._with_keywords, "absent": n - self._with_keywords},
            "sent_tokens": {
                "mean": round(self._sent_total / self._sent_rows, 2) if self._sent_rows else None,
                "max": self._sent_max,
            },
        }

    def _group(self, name: str, tally: Tally) -> dict[str, Any]:
        expected = self._repeats.scaled(self._expected[name]) if name in self._expected else tally.rows
        figures = tally.figures(expected, self._rounding, self._metric.chance)
        return {**figures, "n": tally.n, "n_expected": expected}

    def _count(self, name: str, condition: bool) -> None:
        self._counts[name] += condition

    def _repeated(self, row: Row) -> bool:
        name = digest(row)
        repeated = name in self._seen
        self._seen.add(name)
        self._count("duplicates", repeated)
        return repeated

    def _add_sent(self, sent: Any) -> None:
        if isinstance(sent, int):
            self._sent_rows += 1
            self._sent_total += sent
            self._sent_max = sent if self._sent_max is None else max(self._sent_max, sent)

    def _groups_for(self, row: Row) -> list[str]:
        if self._groups_of is None:
            return []
        groups = list(self._groups_of(row))
        self._count("ungrouped", not groups)
        for name in groups:
            self._groups.setdefault(name, Tally()).rows += 1
        return groups

    def _add_outcome(self, outcome: Outcome, repeat: Tally, groups: Iterable[str], again: bool) -> None:
        chance = self._metric.chance
        guessed = outcome.score if chance is None or UNPARSED not in outcome.flags else chance
        for tally in (self._cell, repeat, *(self._groups[name] for name in groups)):
            tally.add(outcome.score, guessed, again)
        self._plain_total += outcome.plain
        self._count("gated", outcome.gated)
        for flag in outcome.flags:
            self._count(flag, True)

    def _measure_text(self, row: Row) -> Outcome | None:
        """An answer held against the ground truths; None for a row without `pred`."""
        pred, keywords = text_or_null(row, "pred"), text_or_null(row, "gold_ans")
        if pred is None:
            return None
        answers = texts(row, "answers")
        if self._answers == "first":
            answers = answers[:1]
        if self._clean == "first_line":
            pred = first_line(pred)
        if self._metric.needs_classes and self._all_classes is None:
            raise RowError("'all_classes' is missing here and in all other rows; a list of strings was expected")
        context = Context(gold_ans=keywords, all_classes=self._all_classes, **self._options)
        outcomes = [self._metric.measure(pred, answer, context) for answer in answers]
        if not outcomes:
            return Outcome(0.0, 0.0)
        score = max(0.0, *(outcome.score for outcome in outcomes))
        return Outcome(
            score=score,
            plain=max(0.0, *(outcome.plain for outcome in outcomes)),
            gated=score == 0 and any(outcome.gated for outcome in outcomes),
            flags=tuple(dict.fromkeys(flag for outcome in outcomes for flag in outcome.flags)),
        )

    def _line(self, row: Row, index: int, outcome: Outcome | None, groups: list[str], again: bool) -> dict[str, Any]:
        flags = list(outcome.flags) if outcome else []
        if outcome is None or row.get("error"):
            flags.append(FAILED)
        return {
            "id": str(row.get("id", row.get("_id", index))),
            "question_id": row.get("question_id", self._question_id(row)),
            **{name: row[name] for name, kind in _CARRIED.items() if isinstance(row.get(name), kind)},
            **({"again": True} if again else {}),
            "score": outcome.score if outcome else None,
            "plain": outcome.plain if outcome else None,
            "gated": outcome.gated if outcome else False,
            "flags": flags,
            **({} if self._groups_of is None else {"groups": groups}),
        }

    def _question_id(self, row: Row) -> str | None:
        if "_id" in row:
            return str(row["_id"])
        question, answers = row.get("input"), row.get("answers")
        if not isinstance(question, str) or not isinstance(answers, list):
            return None
        return question_id(self._spec["dataset"], question, answers)


_CARRIED = {"document": str, "repeat": int, "rotation": int}
"""What of a row its line of scores tells too."""


def first_line(prediction: str) -> str:
    """An answer's first line, after leading line ends; a line of spaces is one."""
    return prediction.lstrip("\n").split("\n")[0]


def classes_of(rows: Iterable[Row]) -> list[str] | None:
    """The classes by which all rows of a file are scored: those of the last row that has some, None without one.

    The reference takes the last row's for all, and ends with an error where that one has none.
    """
    found = None
    for row in rows:
        classes = row.get("all_classes")
        if isinstance(classes, list) and all(isinstance(name, str) for name in classes):
            found = classes
    return found


def _chosen(spec: Mapping[str, Any], name: str) -> str:
    known = CHOICES[name]
    value = spec.get(name, known[0])
    if value not in known:
        names = ", ".join(sorted("null" if choice is None else choice for choice in known))
        raise UserError(f"{name}: {value!r} is not known; known: {names}")
    return cast(str, value)


def _groups_of(benchmark: str) -> GroupsOf | None:
    from longflow import benchmarks

    if benchmark not in benchmarks.names():  # a configuration's own benchmark has no groups
        return None
    return cast("GroupsOf | None", getattr(benchmarks.load(benchmark).module, "groups_of", None))


def _blank(row: Row) -> bool:
    answer = row.get("pred", row.get("response"))
    return isinstance(answer, str) and not answer.strip()


def _needs_classes(spec: Mapping[str, Any]) -> bool:
    return metric(spec["metric"]).needs_classes


def score_cell(
    predictions: Iterable[Row], spec: Mapping[str, Any], where: str = "predictions"
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The scores of a cell's rows and its summary; see `CellScorer`. Raises UserError."""
    rows: Iterable[Row] = predictions
    classes = None
    if _needs_classes(spec):
        rows = list(predictions)
        classes = classes_of(rows)
    scorer = CellScorer(spec, where, classes)
    lines = [line for row in rows if (line := scorer.add(row)) is not None]
    return lines, scorer.summary()


def run(
    predictions_path: str | Path, spec: Mapping[str, Any], summary_path: str | Path, records_path: str | Path
) -> dict[str, Any]:
    """Score a predictions file into a JSONL file of its records and a JSON summary, which is also returned.

    Each file appears whole or not at all, and their bytes depend on the predictions and the spec alone. Raises
    UserError.
    """
    classes = classes_of(read_jsonl(predictions_path)) if _needs_classes(spec) else None
    scorer = CellScorer(spec, str(predictions_path), classes)
    with atomic_write(records_path) as stream:
        for row in read_jsonl(predictions_path):
            if (line := scorer.add(row)) is not None:
                stream.write(dump_line(line))
    summary = scorer.summary()
    write_json(summary_path, summary)
    return summary
