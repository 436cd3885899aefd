"""Metrics, by the names the benchmarks give them.

`measure` is what the scorer calls. The functions by the references' names take (prediction, ground_truth, gold_ans) and
give the reference's number to the last bit, and its ZeroDivisionError where it has one.

To add a metric: write its function in a module of this package and give it a line in `METRICS`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longflow.errors import UserError, nearest
from longflow.metrics.f1 import qa_f1_score, qa_f1_zh_score
from longflow.metrics.gates import (
    CHINESE,
    ENGLISH,
    EmptyKeywords,
    gated_f1,
    qa_f1_score_with_gold_ans,
    qa_f1_zh_score_with_gold_ans,
)
from longflow.metrics.outcome import KEYWORDS_EMPTY, ROUGE_OVERFLOW, Outcome
from longflow.metrics.rouge import (
    measure_rouge_en,
    measure_rouge_zh,
    measure_rouge_zh_filtered,
    rouge_score,
    rouge_zh_score,
    rouge_zh_score_blacklist,
)

__all__ = [
    "KEYWORDS_EMPTY",
    "METRICS",
    "ROUGE_OVERFLOW",
    "EmptyKeywords",
    "Metric",
    "Outcome",
    "code_digest",
    "measure",
    "qa_f1_score",
    "qa_f1_score_with_gold_ans",
    "qa_f1_zh_score",
    "qa_f1_zh_score_with_gold_ans",
    "rouge_score",
    "rouge_zh_score",
    "rouge_zh_score_blacklist",
]

Measure = Callable[[str, str, str | None, bool], Outcome]
"""Prediction, ground truth, answer keywords, whether to give ROUGE-L beyond the recursion limit its true value."""


@dataclass(frozen=True)
class Metric:
    """A metric: its name in the reference, a title for people, and how it measures one answer."""

    name: str
    title: str
    measure: Measure


def _plain(function: Callable[[str, str, str | None], float]) -> Measure:
    def measured(prediction: str, ground_truth: str, gold_ans: str | None, exact: bool) -> Outcome:
        score = function(prediction, ground_truth, gold_ans)
        return Outcome(score, score)

    return measured


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("qa_f1_score", "F1", _plain(qa_f1_score)),
        Metric("qa_f1_zh_score", "F1 (Chinese)", _plain(qa_f1_zh_score)),
        Metric("qa_f1_score_with_gold_ans", "F1 behind keywords", lambda p, t, k, _: gated_f1(ENGLISH, p, t, k)),
        Metric(
            "qa_f1_zh_score_with_gold_ans",
            "F1 behind keywords (Chinese)",
            lambda p, t, k, _: gated_f1(CHINESE, p, t, k),
        ),
        Metric("rouge_score", "ROUGE-L", lambda p, t, _, exact: measure_rouge_en(p, t, exact)),
        Metric("rouge_zh_score", "ROUGE-L (Chinese)", lambda p, t, _, exact: measure_rouge_zh(p, t, exact)),
        Metric(
            "rouge_zh_score_blacklist",
            "ROUGE-L without stop words (Chinese)",
            lambda p, t, _, exact: measure_rouge_zh_filtered(p, t, exact),
        ),
    )
}


def metric(name: str) -> Metric:
    """A metric by its name. Raises UserError with the nearest name."""
    try:
        return METRICS[name]
    except KeyError:
        raise UserError(f"metric {name!r} is not known; {nearest(name, METRICS)}") from None


def measure(
    name: str,
    prediction: str,
    ground_truth: str,
    gold_ans: str | None = None,
    rouge_overflow: str = "reference",
) -> Outcome:
    """Measure one answer against one ground truth by the metric of this name.

    Never raises for what an answer or its keywords hold. Keywords without a word, which end the reference's run, say
    nothing: the gate is not applied, the plain F1 counts, and the flag `keywords_empty` says so. `rouge_overflow` says
    what a text too long for the reference's ROUGE-L scores: 0 (`reference`) or its true value (`exact`); either is
    flagged. Raises UserError for a name or a choice that is not known.
    """
    if rouge_overflow not in ("reference", "exact"):
        raise UserError(f"rouge_overflow: {rouge_overflow!r} is not known; known: exact, reference")
    return metric(name).measure(prediction, ground_truth, gold_ans, rouge_overflow == "exact")


@functools.cache
def code_digest() -> str:
    """SHA-256 (hex) over the files that decide a score: this package, its word lists, and score.py."""
    here = Path(__file__).parent
    files = sorted([*here.glob("*.py"), *here.glob("*.yaml"), here.parent / "score.py"])
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()
