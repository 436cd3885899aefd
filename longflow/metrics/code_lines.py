"""Similarity of a line of code, as fuzzywuzzy 0.18.0 gives it.

Source of the behaviour: metrics.py of THUDM/LongBench at 2e00731f8d0bff23dc4325161044d0ed8af94c1e; fuzz.py, utils.py
and StringMatcher.py of fuzzywuzzy 0.18.0. That package takes python-Levenshtein's ratio where it finds it installed,
and difflib's otherwise, as with the requirements of the reference. Here the choice is an option, never a matter of what
is installed.
"""

from __future__ import annotations

from difflib import SequenceMatcher


def first_code_line(prediction: str) -> str:
    """The first line, after leading line ends, without a backtick, `#` or `//`; empty if there is none.

    So a comment is passed over, as is code with a comment behind it, and a blank line is taken.
    """
    for line in prediction.lstrip("\n").split("\n"):
        if "`" not in line and "#" not in line and "//" not in line:
            return line
    return ""


def similarity(prediction: str, ground_truth: str, kind: str = "difflib") -> int:
    """fuzzywuzzy's ratio, 0 to 100: equal texts are 100, two empty ones too; a text against an empty one is 0.

    difflib's ratio depends on which text comes first, and passes over frequent characters of a second text of 200
    characters or more; both are kept.
    """
    if prediction == ground_truth:
        return 100
    if not prediction or not ground_truth:
        return 0
    if kind == "levenshtein":
        import Levenshtein

        ratio = float(Levenshtein.ratio(prediction, ground_truth))
    else:
        ratio = SequenceMatcher(None, prediction, ground_truth).ratio()
    return round(100 * ratio)


def code_sim_score(
    prediction: str, ground_truth: str, gold_ans: str | None = None, *, code_similarity: str = "difflib"
) -> float:
    """Similarity (0 to 1, in hundredths) of the prediction's first line of code and the ground truth."""
    return similarity(first_code_line(prediction), ground_truth, code_similarity) / 100
