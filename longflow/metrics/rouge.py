"""ROUGE-L exactly as the package `rouge` 1.0.1 computes it, and the three metrics that the references build on it.

What the package calls ROUGE-L is not the plain longest common subsequence (LCS). Texts are cut into sentences at full
stops. For every pair of a reference sentence and a hypothesis sentence it walks back through the LCS table and notes
the words that it takes; the score is F1 over *sets*: all distinct words taken, against all distinct words of either
text. Which of several equally long subsequences is walked therefore matters, and no LCS library can stand in.

Here the table is kept as bits: one big integer a reference word, a bit for each place of the hypothesis where the LCS
grows (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004). That is all that the walk asks of the table.

Sources of the behaviour: rouge 1.0.1 (rouge.py, rouge_score.py); metrics.py and evaluation.py of infinigence/LVEval at
63e7ae939bd347c76b2cdb1cebfb216faca26897; metrics.py and eval.py of THUDM/LongBench at
2e00731f8d0bff23dc4325161044d0ed8af94c1e.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from longflow.metrics.outcome import ROUGE_OVERFLOW, Outcome
from longflow.metrics.text import normalize_zh, segment, stop_words

_RECURSION_LIMIT = 1000
"""Python's default: so many calls may be open at once."""

_CALLS_ABOVE_THE_WALK = 9
"""In both references: the script, its scorer, rouge_score, and six functions of the package (get_scores,
_get_avg_scores, the lambda of its table of metrics, rouge_l_summary_level, _union_lcs, _recon_lcs)."""

MAX_WALK = _RECURSION_LIMIT - _CALLS_ABOVE_THE_WALK - 1
"""The longest walk, in steps, that `rouge_score` survives in the references' evaluation scripts: 990.

The package walks by recursion, a call a step and one more where it ends. Beyond the limit Python raises RecursionError,
which the references' bare `except` turns into a score of 0. A step takes one word off one sentence or, where the words
are equal, one off both, until one sentence has no word left. So two equal sentences of 991 words score 0. Counted for
Python 3.11 to 3.13; 3.8 to 3.10 allow one step less. (On 3.11 comparing two large numbers counts as a call as well, so
that there a walk of just 990 steps can fail where it ends unmatched hundreds of words into the ground truth.)
"""

MAX_WALK_ZH = MAX_WALK - 1
"""The same for the Chinese metrics, which call `rouge_score` and so stand one call deeper: 989."""


@dataclass(frozen=True)
class RougeL:
    """ROUGE-L F1 (0 to 1) and the longest walk through the table of a pair of sentences, in steps."""

    f: float
    walk: int


def _sentences(text: str) -> list[list[str]]:
    # A piece of spaces alone has one word, the empty one, which can be matched like any other: so does the package.
    return [piece.split() or [""] for piece in text.split(".") if piece]


def rouge_l(prediction: str, ground_truth: str) -> RougeL:
    """ROUGE-L of two texts, equal to the last bit to `rouge` 1.0.1 without its limit on the length.

    A text without anything but full stops gives 0, where the package raises ValueError. Equal texts give 0.999999995:
    the package adds 1e-8 to the denominator.
    """
    hypothesis = _sentences(prediction)
    reference = _sentences(ground_truth)
    if not hypothesis or not reference:
        return RougeL(0.0, 0)
    taken, walk = _walks(reference, hypothesis)
    recall = taken / len({word for sentence in reference for word in sentence})
    precision = taken / len({word for sentence in hypothesis for word in sentence})
    return RougeL(2.0 * ((precision * recall) / (precision + recall + 1e-8)), walk)


def _walks(reference: Sequence[Sequence[str]], hypothesis: Sequence[Sequence[str]]) -> tuple[int, int]:
    """The number of distinct words on the walks of all pairs of sentences, and the longest walk in steps.

    All sentences of the hypothesis stand side by side in one integer, with an unused bit above each that takes up the
    carry of the addition, so that one pass over a reference sentence fills the tables of all its pairs.
    """
    places: dict[str, int] = {}
    starts: list[int] = []
    used = 0
    start = 0
    for sentence in hypothesis:
        starts.append(start)
        for bit, word in enumerate(sentence, start):
            places[word] = places.get(word, 0) | 1 << bit
        used |= ((1 << len(sentence)) - 1) << start
        start += len(sentence) + 1

    taken: set[str] = set()
    longest = 0
    for words in reference:
        matches = [places.get(word, 0) for word in words]
        grows = _table(matches, used)
        for start, sentence in zip(starts, hypothesis, strict=True):
            steps = _walk(words, sentence, start, matches, grows, taken)
            longest = max(longest, steps)
    return len(taken), longest


def _table(matches: Sequence[int], used: int) -> list[int]:
    """For each reference word the places of the hypothesis at which the LCS of all up to there grows by one."""
    rows = []
    flat = used
    for match in matches:
        if match:
            common = flat & match
            flat = ((flat + common) | (flat - common)) & used
        rows.append(flat ^ used)
    return rows


def _walk(
    reference: Sequence[str],
    hypothesis: Sequence[str],
    start: int,
    matches: Sequence[int],
    grows: Sequence[int],
    taken: set[str],
) -> int:
    """Walk back through the table of one pair, add the words it takes to `taken`, return the number of its steps.

    The package's rule: equal words are taken; else up (one reference word less) if the LCS above is longer than the one
    to the left; else left. At unequal words the LCS above is the longer one exactly where the LCS grows at this place
    of this row. So the walk goes left to the next place that matches or grows; and where it goes up, the place goes on
    growing in the rows above, so that it goes up as far as the word's nearest match.
    """
    i, j, found = len(reference), len(hypothesis), 0
    while i and j:
        j = (((matches[i - 1] | grows[i - 1]) >> start) & ((1 << j) - 1)).bit_length()
        if not j:
            break
        place = 1 << (start + j - 1)
        while not matches[i - 1] & place:
            i -= 1
        taken.add(reference[i - 1])
        found += 1
        i -= 1
        j -= 1
    return len(reference) - i + len(hypothesis) - j - found


def _join_words(text: str) -> str:
    return " ".join(segment(text))


@functools.lru_cache(maxsize=1 << 16)
def _second_cut(word: str) -> tuple[str, ...]:
    """The tokens, normalised and without stop words, into which one word of the first cut is cut again."""
    tokens = (normalize_zh(token) for token in segment(word))
    return tuple(token for token in tokens if token not in stop_words("zh"))


def _filtered(text: str) -> str:
    """The tokens that dureader's metric compares, joined by spaces.

    The reference cuts a text into words, joins them by spaces and cuts the result again. A space always ends a word, so
    the second cut is that of each word by itself, with the spaces as tokens between them. Spaces and punctuation become
    empty tokens, which are kept: so a text of two full stops is not an empty one, and matches another of the kind.
    """
    tokens: list[str] = []
    for index, word in enumerate(segment(text)):
        if index:
            tokens.append("")
        tokens.extend(_second_cut(word))
    return " ".join(tokens)


def _measure(prediction: str, ground_truth: str, limit: int, exact: bool) -> Outcome:
    result = rouge_l(prediction, ground_truth)
    if result.walk <= limit:
        return Outcome(result.f, result.f)
    score = result.f if exact else 0.0
    return Outcome(score, score, flags=(ROUGE_OVERFLOW,))


def measure_rouge_en(prediction: str, ground_truth: str, exact: bool) -> Outcome:
    """ROUGE-L over words between spaces. A walk beyond MAX_WALK is flagged and gives 0, its true value if `exact`."""
    return _measure(prediction, ground_truth, MAX_WALK, exact)


def measure_rouge_zh(prediction: str, ground_truth: str, exact: bool) -> Outcome:
    """ROUGE-L over jieba's words, punctuation included; a walk beyond MAX_WALK_ZH is flagged and treated likewise."""
    return _measure(_join_words(prediction), _join_words(ground_truth), MAX_WALK_ZH, exact)


def measure_rouge_zh_filtered(prediction: str, ground_truth: str, exact: bool) -> Outcome:
    """ROUGE-L over Chinese words without punctuation and stop words, with the limit of `measure_rouge_zh`.

    Full stops are punctuation, so a text is one sentence, and "3.14" is "314".
    """
    return _measure(_filtered(prediction), _filtered(ground_truth), MAX_WALK_ZH, exact)


def rouge_score(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """The reference's ROUGE-L: `measure_rouge_en` with its zeros. `gold_ans` plays no part."""
    return measure_rouge_en(prediction, ground_truth, exact=False).score


def rouge_zh_score(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """The reference's Chinese ROUGE-L: `measure_rouge_zh` with its zeros. `gold_ans` plays no part."""
    return measure_rouge_zh(prediction, ground_truth, exact=False).score


def rouge_zh_score_blacklist(prediction: str, ground_truth: str, gold_ans: str | None = None) -> float:
    """LV-Eval's metric for dureader: `measure_rouge_zh_filtered` with its zeros. `gold_ans` plays no part."""
    return measure_rouge_zh_filtered(prediction, ground_truth, exact=False).score
