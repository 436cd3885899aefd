"""Token F1: how many tokens an answer and the ground truth share.

Source of the behaviour: metrics.py of infinigence/LVEval at 63e7ae939bd347c76b2cdb1cebfb216faca26897; the same
functions are in metrics.py of THUDM/LongBench at 2e00731f8d0bff23dc4325161044d0ed8af94c1e.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from longflow.metrics.text import tokens_en, tokens_zh


def shared_tokens(left: Sequence[str], right: Sequence[str]) -> Counter[str]:
    """The tokens that occur in both, each as often as in the one that has fewer of it."""
    return Counter(left) & Counter(right)


def f1_score(prediction: Sequence[str], ground_truth: Sequence[str]) -> float:
    """F1 (0 to 1) of two bags of tokens; 0 where they share none, so also where both are empty."""
    same = shared_tokens(prediction, ground_truth).total()
    if same == 0:
        return 0.0
    precision = same / len(prediction)
    recall = same / len(ground_truth)
    # Written out in the reference's order of operations: another order differs in the last bit.
    return (2 * precision * recall) / (precision + recall)


def qa_f1_score(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """F1 over normalised English words; `gold_ans` plays no part."""
    return f1_score(tokens_en(prediction), tokens_en(ground_truth))


def qa_f1_zh_score(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """F1 over normalised Chinese words; `gold_ans` plays no part."""
    return f1_score(tokens_zh(prediction), tokens_zh(ground_truth))
