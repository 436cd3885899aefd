"""F1 behind a keyword gate: an answer that names too few of the answer keywords scores 0, however many words it shares.

Source of the behaviour: metrics.py of infinigence/LVEval at 63e7ae939bd347c76b2cdb1cebfb216faca26897. The paper and the
README say that the stop words are taken out of the F1 as well; the code does not do that, and nor is it done here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longflow.metrics.f1 import f1_score, shared_tokens
from longflow.metrics.outcome import KEYWORDS_EMPTY, Outcome
from longflow.metrics.text import stop_words, tokens_en, tokens_zh


class EmptyKeywords(ZeroDivisionError):
    """The keywords hold no word ("the", "..."), so no share of them can be found; the reference divides by zero."""


@dataclass(frozen=True)
class Gate:
    """One language's gate: the share of the keywords that must be found, and what counts where there are none."""

    language: str
    tokens: Callable[[str], list[str]]
    threshold: float
    truth_stands_in: bool
    """Without keywords the ground truth takes their place; otherwise there is no gate then."""


ENGLISH = Gate("en", tokens_en, threshold=0.2, truth_stands_in=False)
CHINESE = Gate("zh", tokens_zh, threshold=0.4, truth_stands_in=True)


def keyword_recall(prediction: Sequence[str], keywords: Sequence[str], language: str) -> float:
    """The share (0 to 1) of the keyword tokens that the prediction has.

    Stop words of the language do not count as found, but stay in the number that is divided by: keywords made of stop
    words alone give 0. Raises EmptyKeywords where there is no token.
    """
    if not keywords:
        raise EmptyKeywords("the answer keywords hold no word")
    ignored = stop_words(language)
    found = sum(count for token, count in shared_tokens(prediction, keywords).items() if token not in ignored)
    return found / len(keywords)


def gated_f1(gate: Gate, prediction: str, ground_truth: str, gold_ans: str | None) -> Outcome:
    """F1 and its gate. A recall equal to the threshold passes; without a token in the keywords there is no gate."""
    predicted = gate.tokens(prediction)
    plain = f1_score(predicted, gate.tokens(ground_truth))
    keywords = gold_ans or (ground_truth if gate.truth_stands_in else "")
    if not keywords:
        return Outcome(plain, plain)
    try:
        recall = keyword_recall(predicted, gate.tokens(keywords), gate.language)
    except EmptyKeywords:
        return Outcome(plain, plain, flags=(KEYWORDS_EMPTY,))
    if recall < gate.threshold:
        return Outcome(0.0, plain, gated=plain > 0)
    return Outcome(plain, plain)


def _score(gate: Gate, prediction: str, ground_truth: str, gold_ans: str | None) -> float:
    outcome = gated_f1(gate, prediction, ground_truth, gold_ans)
    if KEYWORDS_EMPTY in outcome.flags:
        raise EmptyKeywords(f"no word is left of the answer keywords {gold_ans or ground_truth!r}")
    return outcome.score


def qa_f1_score_with_gold_ans(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """English F1, 0 where less than 0.2 of the keywords is found. Raises EmptyKeywords."""
    return _score(ENGLISH, prediction, ground_truth, gold_ans)


def qa_f1_zh_score_with_gold_ans(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """Chinese F1, 0 where less than 0.4 of the keywords is found. Raises EmptyKeywords.

    Without keywords the ground truth stands in for them, so that this gate always applies.
    """
    return _score(CHINESE, prediction, ground_truth, gold_ans)
