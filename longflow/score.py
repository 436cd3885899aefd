"""Scores: a predictions file in; a line a record and a summary out.

The rules are those of LV-Eval's evaluation.py (infinigence/LVEval at 63e7ae939bd347c76b2cdb1cebfb216faca26897): of the
answers only the first counts, a score starts at 0, the sum is taken in file order in plain floats, and the mean is
rounded by Python's `round` to two decimals of a percentage.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from longflow.errors import UserError
from longflow.jsonio import atomic_write, dump_line, read_jsonl, write_json
from longflow.metrics import KEYWORDS_EMPTY, ROUGE_OVERFLOW, Outcome, measure, metric
from longflow.records import question_id

FAILED = "failed"
"""Flag of a record for which there is no answer: the engine failed, or the row has no `pred`."""

_CELL = ("benchmark", "model", "setting", "dataset", "length", "metric", "language", "category")
_COUNTS = ("truncated", "empty", "failed", "gated", "keywords_empty", "rouge_overflow", "ran_out")


class CellScorer:
    """Scores one cell, row by row.

    `spec` names the cell (benchmark, model, setting, dataset, length, metric, language, category), says how many
    records it should have (`n_expected`) and how to score: `rouge_overflow` (default `reference`) and
    `first_answer_only` (default true; false takes the best of all). `where` names the file in errors.
    """

    def __init__(self, spec: dict[str, Any], where: str = "predictions") -> None:
        metric(spec["metric"])  # an unknown name is an error even where there is nothing to score
        self._spec = spec
        self._where = where
        self._rows = 0
        self._scored = 0
        self._total = 0.0
        self._plain_total = 0.0
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._with_keywords = 0
        self._sent_rows = 0
        self._sent_total = 0
        self._sent_max: int | None = None

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        """Score one row of a predictions file; the row needs the reference's keys at most.

        Returns the line of the scores file: id, question_id, score and plain (0 to 1, unrounded; None where there was
        no `pred`), gated, flags. A row without `pred` counts as failed and not as scored; one with `pred` and `error`
        counts as both, as the reference would score its empty text. Raises UserError naming file, row and key.
        """
        index = self._rows
        self._rows += 1
        failed = bool(row.get("error"))
        self._count("failed", failed or "pred" not in row)
        self._count("truncated", row.get("kept_head") is not None)
        self._count("ran_out", row.get("finish_reason") == "length")
        self._add_sent(row.get("sent_tokens"))
        if "pred" not in row or (failed and row["pred"] is None):
            return self._line(row, index, None)
        pred, answers, keywords = self._checked(row, index)
        outcome = self._measure(pred, answers, keywords)
        self._scored += 1
        self._total += outcome.score
        self._plain_total += outcome.plain
        self._with_keywords += bool(keywords)
        self._count("empty", not failed and not pred.strip())
        self._count("gated", outcome.gated)
        self._count("keywords_empty", KEYWORDS_EMPTY in outcome.flags)
        self._count("rouge_overflow", ROUGE_OVERFLOW in outcome.flags)
        return self._line(row, index, outcome)

    def summary(self) -> dict[str, Any]:
        """The cell's summary so far.

        `score` is what the reference prints for the rows that have a `pred`, None if there are none (the reference ends
        with an error); `score_expected` divides by the records there should be, so that missing and failed ones count
        0, or by those there are if there are more. Both are percentages with two decimals, as is `plain`, the mean
        without the keyword gate; `total` and `plain_total` are the sums behind them, unrounded. `rows` counts all rows
        found, `n` those that have a `pred`.
        """
        n = self._scored
        expected = int(self._spec["n_expected"])
        return {
            **{key: self._spec[key] for key in _CELL},
            "score": _percentage(self._total, n),
            "score_expected": _percentage(self._total, max(n, expected)),
            "plain": _percentage(self._plain_total, n),
            "total": self._total,
            "plain_total": self._plain_total,
            "rows": self._rows,
            "n": n,
            "n_expected": expected,
            "counts": dict(self._counts),
            "answer_keywords": {"present": self._with_keywords, "absent": n - self._with_keywords},
            "sent_tokens": {
                "mean": round(self._sent_total / self._sent_rows, 2) if self._sent_rows else None,
                "max": self._sent_max,
            },
        }

    def _count(self, name: str, condition: bool) -> None:
        self._counts[name] += condition

    def _add_sent(self, sent: Any) -> None:
        if isinstance(sent, int):
            self._sent_rows += 1
            self._sent_total += sent
            self._sent_max = sent if self._sent_max is None else max(self._sent_max, sent)

    def _measure(self, pred: str, answers: list[str], keywords: str | None) -> Outcome:
        name = self._spec["metric"]
        overflow = self._spec.get("rouge_overflow", "reference")
        counted = answers[:1] if self._spec.get("first_answer_only", True) else answers
        outcomes = [measure(name, pred, answer, keywords, overflow) for answer in counted]
        if not outcomes:
            return Outcome(0.0, 0.0)
        score = max(0.0, *(outcome.score for outcome in outcomes))
        return Outcome(
            score=score,
            plain=max(0.0, *(outcome.plain for outcome in outcomes)),
            gated=score == 0 and any(outcome.gated for outcome in outcomes),
            flags=tuple(dict.fromkeys(flag for outcome in outcomes for flag in outcome.flags)),
        )

    def _checked(self, row: dict[str, Any], index: int) -> tuple[str, list[str], str | None]:
        pred, keywords = row["pred"], row.get("gold_ans")
        if not isinstance(pred, str):
            raise self._error(index, "pred", "a string", pred)
        if "answers" not in row:
            raise UserError(f"{self._where}, row {index + 1}: 'answers' is missing; a list of strings was expected")
        answers = row["answers"]
        if not isinstance(answers, list):
            raise self._error(index, "answers", "a list of strings", answers)
        for answer in answers:
            if not isinstance(answer, str):
                raise self._error(index, "answers", "a list of strings", answer, "a list that holds ")
        if keywords is not None and not isinstance(keywords, str):
            raise self._error(index, "gold_ans", "a string or null", keywords)
        return pred, answers, keywords

    def _error(self, index: int, key: str, expected: str, found: Any, inside: str = "") -> UserError:
        kind = _JSON_NAMES.get(type(found), type(found).__name__)
        return UserError(f"{self._where}, row {index + 1}: {key!r} must be {expected}, found {inside}{kind}")

    def _line(self, row: dict[str, Any], index: int, outcome: Outcome | None) -> dict[str, Any]:
        flags = list(outcome.flags) if outcome else []
        if outcome is None or row.get("error"):
            flags.append(FAILED)
        return {
            "id": str(row.get("id", index)),
            "question_id": row.get("question_id", self._question_id(row)),
            "score": outcome.score if outcome else None,
            "plain": outcome.plain if outcome else None,
            "gated": outcome.gated if outcome else False,
            "flags": flags,
        }

    def _question_id(self, row: dict[str, Any]) -> str | None:
        question, answers = row.get("input"), row.get("answers")
        if not isinstance(question, str) or not isinstance(answers, list):
            return None
        return question_id(self._spec["dataset"], question, answers)


_JSON_NAMES = {
    type(None): "null",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def _percentage(total: float, n: int) -> float | None:
    return round(100 * total / n, 2) if n else None


def score_cell(
    predictions: Iterable[dict[str, Any]], spec: dict[str, Any], where: str = "predictions"
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The scores of a cell's rows and its summary; see `CellScorer`. Raises UserError."""
    scorer = CellScorer(spec, where)
    return [scorer.add(row) for row in predictions], scorer.summary()


def run(
    predictions_path: str | Path, spec: dict[str, Any], summary_path: str | Path, records_path: str | Path
) -> dict[str, Any]:
    """Score a predictions file into a JSONL file of its records and a JSON summary, which is also returned.

    Each file appears whole or not at all, and their bytes depend on the predictions and the spec alone. Raises
    UserError.
    """
    scorer = CellScorer(spec, str(predictions_path))
    with atomic_write(records_path) as stream:
        for row in read_jsonl(predictions_path):
            stream.write(dump_line(scorer.add(row)))
    summary = scorer.summary()
    write_json(summary_path, summary)
    return summary
