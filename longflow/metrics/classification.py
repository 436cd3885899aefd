"""Classification: is the right class among those that an answer names, and how many others are.

Source of the behaviour: metrics.py of THUDM/LongBench at 2e00731f8d0bff23dc4325161044d0ed8af94c1e.
"""

from __future__ import annotations

from collections.abc import Sequence


def classification_score(
    prediction: str, ground_truth: str, gold_ans: str | None = None, *, all_classes: Sequence[str]
) -> float:
    """1 over the number of classes that the prediction names, 0 if the ground truth is not among them.

    A class is named if it is a part of the prediction. Classes that are a part of the ground truth are to be left out,
    so that "Description" does not count beside "Description of something". The reference deletes them from the list
    that it is going through, and so passes over the class behind each that it deletes; the same is done here.
    """
    named = [name for name in all_classes if name in prediction]
    place = 0
    while place < len(named):
        name = named[place]
        if name in ground_truth and name != ground_truth:
            named.remove(name)
        place += 1
    return 1.0 / len(named) if ground_truth in named else 0.0
