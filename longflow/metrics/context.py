"""What a metric may need beside an answer and the ground truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longflow.errors import UserError

CHOICES = {
    "rouge_overflow": ("reference", "exact"),
    "code_similarity": ("difflib", "levenshtein"),
}


@dataclass(frozen=True)
class Context:
    """A record's answer keywords and classes, and a run's choices among variants of the metrics.

    `rouge_overflow` says what a text too long for the reference's ROUGE-L scores: 0 (`reference`) or its true value
    (`exact`). `code_similarity` says by which ratio lines of code are compared: difflib's, which fuzzywuzzy uses as the
    reference installs it, or that of python-Levenshtein, which fuzzywuzzy uses where that package is found.
    Raises UserError for a choice that is not known.
    """

    gold_ans: str | None = None
    all_classes: Sequence[str] | None = None
    rouge_overflow: str = "reference"
    code_similarity: str = "difflib"

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise UserError(f"{name}: {getattr(self, name)!r} is not known; known: {', '.join(sorted(known))}")


PLAIN = Context()
"""Nothing beside the answer and the ground truth, and the references' own choices."""
