"""Whether an answer is in another language than was asked for, as far as its script tells.

Chinese and English differ in their letters; English and other languages in Latin letters are not told apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

SCRIPTS = {"en": "latin", "zh": "han"}
"""The script of a language."""

_NAMES = {"latin": "Latin letters", "han": "Chinese characters", "other": "another script"}
_WORD = re.compile(r"[a-zÀ-ɏ'’-]{2,}", re.IGNORECASE)


def scripts(text: str) -> Counter[str]:
    """How much of a text is in which script: Chinese characters, words of Latin letters, characters of others.

    Latin words that are all capitals (DNA, GDP) are taken for names that every language has, and not counted.
    """
    counts = Counter({"latin": sum(not word.isupper() for word in _WORD.findall(text)), "han": 0, "other": 0})
    for character in text:
        if "\u4e00" <= character <= "\u9fff" or "\u3400" <= character <= "\u4dbf":
            counts["han"] += 1
        elif "\u3040" <= character <= "\u30ff" or "\uac00" <= character <= "\ud7af":  # kana, hangul
            counts["other"] += 1
        else:  # Greek, Cyrillic and on to the scripts of South Asia
            counts["other"] += "\u0370" <= character <= "\u1fff" and character.isalpha()
    return counts


def main_script(text: str) -> str | None:
    """The script of more than half of a text (`latin`, `han` or `other`); None without letters or without a majority.

    Kana make a text Japanese, so `other`, though most of its characters may be Chinese ones: a fifth is enough.
    """
    counts = scripts(text)
    total = counts.total()
    if not total:
        return None
    if counts["other"] * 5 >= total:
        return "other"
    script, count = counts.most_common(1)[0]
    return script if count * 2 > total else None


def wrong_language(prediction: str, truths: Sequence[str], language: str) -> tuple[bool, str]:
    """Whether an answer is in another script than its task's language, and why it is thought so.

    Words that a right answer has as well (titles, names) do not count. It is not where a right answer is in another
    script (a Chinese question for an English name), nor where there are no letters (numbers) or no script has the
    majority.
    """
    expected = SCRIPTS.get(language)
    if expected is None:
        return False, "the task is not in a language"
    if any(main_script(truth) != expected for truth in truths):
        return False, f"the right answer is not in {_NAMES[expected]} alone"
    theirs = {word.lower() for truth in truths for word in _WORD.findall(truth)}
    found = main_script(_WORD.sub(lambda word: "" if word[0].lower() in theirs else word[0], prediction))
    if found is None or found == expected:
        return False, "numbers, names or both scripts" if found is None else f"the answer is in {_NAMES[found]}"
    return True, f"the answer is in {_NAMES[found]}"
