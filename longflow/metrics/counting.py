"""Counting and retrieval: of the numbers in an answer, the share that are the right one.

Source of the behaviour: metrics.py of THUDM/LongBench at 2e00731f8d0bff23dc4325161044d0ed8af94c1e. Numbers are compared
as text: "05" is not "5", and "5.0" is the two numbers "5" and "0".
"""

from __future__ import annotations

import re

from longflow.metrics.outcome import TRUTH_UNREADABLE, Outcome

_NUMBER = re.compile(r"\d+")
_PARAGRAPH_EN = re.compile(r"Paragraph (\d+)")
_PARAGRAPH_ZH = re.compile(r"段落(\d+)")


class NoParagraph(IndexError):
    """The ground truth names no paragraph; the reference takes the first of an empty list."""


def _share(prediction: str, right: str) -> float:
    numbers = _NUMBER.findall(prediction)
    return numbers.count(right) / len(numbers) if numbers else 0.0


def count_score(prediction: str, ground_truth: str | int, gold_ans: str | None = None) -> float:
    """The share of the prediction's numbers that are the ground truth; 0 where it has none."""
    return _share(prediction, str(ground_truth))


def _retrieval(pattern: re.Pattern[str], prediction: str, ground_truth: str) -> float:
    named = pattern.search(ground_truth)
    if named is None:
        raise NoParagraph(f"the ground truth {ground_truth!r} names no paragraph; {pattern.pattern!r} was expected")
    return _share(prediction, named[1])


def retrieval_score(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """The share of the prediction's numbers that are the one of "Paragraph N". Raises NoParagraph."""
    return _retrieval(_PARAGRAPH_EN, prediction, ground_truth)


def retrieval_zh_score(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """The share of the prediction's numbers that are the one of "段落N". Raises NoParagraph."""
    return _retrieval(_PARAGRAPH_ZH, prediction, ground_truth)


def _measured(pattern: re.Pattern[str], prediction: str, ground_truth: str) -> Outcome:
    try:
        score = _retrieval(pattern, prediction, ground_truth)
    except NoParagraph:
        return Outcome(0.0, 0.0, flags=(TRUTH_UNREADABLE,))
    return Outcome(score, score)


def measure_retrieval_en(prediction: str, ground_truth: str) -> Outcome:
    """`retrieval_score`; a ground truth that names no paragraph is flagged and gives 0."""
    return _measured(_PARAGRAPH_EN, prediction, ground_truth)


def measure_retrieval_zh(prediction: str, ground_truth: str) -> Outcome:
    """`retrieval_zh_score`, with the rule of `measure_retrieval_en`."""
    return _measured(_PARAGRAPH_ZH, prediction, ground_truth)
