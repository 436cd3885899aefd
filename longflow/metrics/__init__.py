"""Metrics, by the names the benchmarks give them.

`measure` is what the scorer calls. The functions by the references' names take (prediction, ground_truth, gold_ans) and
give the reference's number to the last bit, and its error where it has one.

To add a metric: write its function in a module of this package and give it a line in `METRICS`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longflow.errors import UserError, nearest
from longflow.metrics.choice import CHANCE, choice, extract_answer, measure_choice, measure_choice_row
from longflow.metrics.classification import classification_score
from longflow.metrics.code_lines import code_sim_score
from longflow.metrics.context import PLAIN, Context
from longflow.metrics.counting import (
    NoParagraph,
    count_score,
    measure_retrieval_en,
    measure_retrieval_zh,
    retrieval_score,
    retrieval_zh_score,
)
from longflow.metrics.f1 import qa_f1_score, qa_f1_zh_score
from longflow.metrics.gates import (
    CHINESE,
    ENGLISH,
    EmptyKeywords,
    gated_f1,
    qa_f1_score_with_gold_ans,
    qa_f1_zh_score_with_gold_ans,
)
from longflow.metrics.outcome import KEYWORDS_EMPTY, ROUGE_OVERFLOW, TRUTH_UNREADABLE, UNPARSED, Outcome
from longflow.metrics.rouge import (
    measure_rouge_en,
    measure_rouge_zh,
    measure_rouge_zh_filtered,
    rouge_score,
    rouge_zh_score,
    rouge_zh_score_blacklist,
)
from longflow.metrics.rows import Row

__all__ = [
    "KEYWORDS_EMPTY",
    "METRICS",
    "ROUGE_OVERFLOW",
    "TRUTH_UNREADABLE",
    "UNPARSED",
    "Context",
    "EmptyKeywords",
    "Metric",
    "NoParagraph",
    "Outcome",
    "choice",
    "classification_score",
    "code_digest",
    "code_sim_score",
    "count_score",
    "extract_answer",
    "measure",
    "metric",
    "qa_f1_score",
    "qa_f1_score_with_gold_ans",
    "qa_f1_zh_score",
    "qa_f1_zh_score_with_gold_ans",
    "retrieval_score",
    "retrieval_zh_score",
    "rouge_score",
    "rouge_zh_score",
    "rouge_zh_score_blacklist",
]

Measure = Callable[[str, str, Context], Outcome]
"""Prediction, ground truth, and what the metric may need beside them."""

MeasureRow = Callable[[Row], Outcome | None]
"""A row of a predictions file; None where it holds no answer."""


@dataclass(frozen=True)
class Metric:
    """A metric: its name in the reference, a title for people, and how it measures one answer.

    `needs_classes` says that it takes the `all_classes` of its context. `measure_row` is given by a metric whose rows
    are not an answer and ground truths. `chance` is what a blind guess scores, for a metric that is also reported with
    its unparsed answers taken as guesses.
    """

    name: str
    title: str
    measure: Measure
    needs_classes: bool = False
    measure_row: MeasureRow | None = None
    chance: float | None = None


def _plain(function: Callable[[str, str], float]) -> Measure:
    def measured(prediction: str, ground_truth: str, _: Context) -> Outcome:
        score = function(prediction, ground_truth)
        return Outcome(score, score)

    return measured


def _classification(prediction: str, ground_truth: str, context: Context) -> Outcome:
    if context.all_classes is None:
        raise UserError("classification_score needs the classes there are (all_classes); none are given")
    score = classification_score(prediction, ground_truth, all_classes=context.all_classes)
    return Outcome(score, score)


def _code_similarity(prediction: str, ground_truth: str, context: Context) -> Outcome:
    score = code_sim_score(prediction, ground_truth, code_similarity=context.code_similarity)
    return Outcome(score, score)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("qa_f1_score", "F1", _plain(qa_f1_score)),
        Metric("qa_f1_zh_score", "F1 (Chinese)", _plain(qa_f1_zh_score)),
        Metric("qa_f1_score_with_gold_ans", "F1 behind keywords", lambda p, t, c: gated_f1(ENGLISH, p, t, c.gold_ans)),
        Metric(
            "qa_f1_zh_score_with_gold_ans",
            "F1 behind keywords (Chinese)",
            lambda p, t, c: gated_f1(CHINESE, p, t, c.gold_ans),
        ),
        Metric("rouge_score", "ROUGE-L", lambda p, t, c: measure_rouge_en(p, t, c.rouge_overflow == "exact")),
        Metric(
            "rouge_zh_score", "ROUGE-L (Chinese)", lambda p, t, c: measure_rouge_zh(p, t, c.rouge_overflow == "exact")
        ),
        Metric(
            "rouge_zh_score_blacklist",
            "ROUGE-L without stop words (Chinese)",
            lambda p, t, c: measure_rouge_zh_filtered(p, t, c.rouge_overflow == "exact"),
        ),
        Metric("classification_score", "Accuracy", _classification, needs_classes=True),
        Metric("count_score", "Accuracy", _plain(count_score)),
        Metric("retrieval_score", "Accuracy", lambda p, t, _: measure_retrieval_en(p, t)),
        Metric("retrieval_zh_score", "Accuracy (Chinese)", lambda p, t, _: measure_retrieval_zh(p, t)),
        Metric("code_sim_score", "Similarity of code", _code_similarity),
        Metric(
            "choice",
            "Accuracy",
            lambda p, t, _: measure_choice(p, t),
            measure_row=measure_choice_row,
            chance=CHANCE,
        ),
    )
}


def metric(name: str) -> Metric:
    """A metric by its name. Raises UserError with the nearest name."""
    try:
        return METRICS[name]
    except KeyError:
        raise UserError(f"metric {name!r} is not known; {nearest(name, METRICS)}") from None


def measure(name: str, prediction: str, ground_truth: str, context: Context = PLAIN) -> Outcome:
    """Measure one answer against one ground truth by the metric of this name.

    Never raises for what an answer, its ground truth or its keywords hold. Where the reference ends with an error, a
    stated rule holds and a flag says so: keywords without a word say nothing, so the gate is not applied and the plain
    F1 counts (`keywords_empty`); a ground truth that names no paragraph cannot be met (`truth_unreadable`). Raises
    UserError for a name that is not known, and for a classification without classes.
    """
    return metric(name).measure(prediction, ground_truth, context)


@functools.cache
def code_digest() -> str:
    """SHA-256 (hex) over the files that decide a score: this package, its word lists, and score.py."""
    here = Path(__file__).parent
    files = sorted([*here.glob("*.py"), *here.glob("*.yaml"), here.parent / "score.py"])
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()
