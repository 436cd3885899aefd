"""Multiple choice: the letter that an answer gives, and whether it is the right one.

Source of the behaviour: pred.py and result.py of THUDM/LongBench at 2e00731f8d0bff23dc4325161044d0ed8af94c1e (LongBench
v2).
"""

from __future__ import annotations

import re

from longflow.metrics.outcome import UNPARSED, Outcome
from longflow.metrics.rows import Row, RowError, text_or_null, texts, wrong

CHANCE = 0.25
"""The share of right answers by guessing, which the compensated figure gives to answers that cannot be read."""

_IN_BRACKETS = re.compile(r"The correct answer is \(([A-D])\)")
_BARE = re.compile(r"The correct answer is ([A-D])")


def extract_answer(response: str) -> str | None:
    """The letter A to D that a response gives in the words it was asked to use, or None.

    Asterisks are dropped. The first letter in brackets counts, and only without one the first letter without brackets,
    which may be the beginning of a word.
    """
    plain = response.replace("*", "")
    found = _IN_BRACKETS.search(plain) or _BARE.search(plain)
    return found[1] if found else None


def choice(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """1 if the prediction is the right letter, else 0; see `measure_choice`."""
    return measure_choice(prediction, ground_truth).score


def measure_choice(prediction: str, ground_truth: str) -> Outcome:
    """1 if the prediction is the right letter, else 0.

    A single character is the letter itself; from anything else it is extracted, and where that fails the answer is
    flagged as unparsed.
    """
    letter = prediction if len(prediction) == 1 else extract_answer(prediction)
    if letter is None:
        return Outcome(0.0, 0.0, flags=(UNPARSED,))
    score = float(letter == ground_truth)
    return Outcome(score, score)


def measure_choice_row(row: Row) -> Outcome | None:
    """What a row of a predictions file scores, None if it holds no answer. Raises RowError.

    A row of the reference has the letter read from the answer, or null, as `pred`, which is held against its `answer`;
    without an `answer` its `judge` counts; without a `pred` as well, the letter in its `response`. A row that has
    `answers` instead has the text of the answer as `pred`. An answer that was received and in which no letter was found
    is flagged as unparsed and scores 0. A row that has an `error` and no `pred` holds no answer.
    """
    pred, response = text_or_null(row, "pred"), text_or_null(row, "response")
    if row.get("error") and not pred:
        return None
    truth = text_or_null(row, "answer")
    if truth is None and row.get("answers"):
        return _measure_text(pred, texts(row, "answers")[0])
    if "pred" in row and truth is not None:
        return measure_choice(pred or "", truth)
    if row.get("judge") is not None:
        score = float(_judged(row["judge"]))
        unread = "pred" in row and not pred
        return Outcome(score, score, flags=(UNPARSED,) if unread else ())
    if "pred" in row and not pred:
        return Outcome(0.0, 0.0, flags=(UNPARSED,))
    if pred is not None or (response is not None and truth is None):
        raise RowError("'answer' is missing, as is 'judge'; a letter or true or false was expected")
    return _measure_text(response, truth or "")


def _measure_text(response: str | None, truth: str) -> Outcome | None:
    return None if response is None else measure_choice(extract_answer(response) or "", truth)


def _judged(judge: object) -> bool:
    if isinstance(judge, (bool, int)) and judge in (0, 1):
        return bool(judge)
    raise wrong("judge", "true or false", judge)
