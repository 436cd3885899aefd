"""What a metric says of one answer."""

from __future__ import annotations

from dataclasses import dataclass

KEYWORDS_EMPTY = "keywords_empty"
"""Flag: the keywords held no word, so the keyword gate was not applied; the reference ends here with an error."""

ROUGE_OVERFLOW = "rouge_overflow"
"""Flag: the texts are so long that the reference's ROUGE-L runs into the recursion limit and gives 0."""

TRUTH_UNREADABLE = "truth_unreadable"
"""Flag: the ground truth names no paragraph, so that nothing can match it; the reference ends here with an error."""

UNPARSED = "unparsed"
"""Flag: an answer to a multiple-choice question was received, but no letter can be read from it."""


@dataclass(frozen=True)
class Outcome:
    """The score of one answer against one ground truth, 0 to 1.

    `score` is what counts. `plain` is the score without the keyword gate, the same where a metric has none. `gated`
    says that the gate took away a score above 0.
    """

    score: float
    plain: float
    gated: bool = False
    flags: tuple[str, ...] = ()
