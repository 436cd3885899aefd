"""What became of a record: flags, each with its reason, and one label made of them.

Nothing here touches a score. The rules are simple on purpose: each can be checked by eye on the record it speaks of.
docs/anatomy.md states them for users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longflow.anatomy.language import wrong_language
from longflow.anatomy.refusal import is_blank, refusal
from longflow.anatomy.words import content, empty_words, holds, kind, listed, sentence_ends, strings, tokens
from longflow.metrics.outcome import UNPARSED
from longflow.metrics.text import normalize_zh
from longflow.score import FAILED, first_line

RIGHT = 0.5
"""A score from here on counts as right."""

PARTLY = 0.1
"""A score from here on counts as partly right, unless a flag says more."""

BAIT_SHARE = 1 / 3
"""Of an answer's words, the share that the confusing fact alone has, from which on the model took the bait."""

ROTATIONS = 4
"""A multiple-choice question is known without context if it is answered right with each option in each place."""

LABELS = {
    "right": "right",
    "right_known": "right, also without the context",
    "right_wordy": "holds the right answer among too many words",
    "partly_right": "partly right",
    "gated": "shares words, but not the keywords",
    "bait": "took the bait",
    "wrong_language": "wrong language",
    "evidence_cut": "evidence cut away",
    "unparsed": "no choice could be read",
    "ran_out": "ran out of tokens before an answer",
    "refused": "refused or empty",
    "reasoning_open": "reasoning never closed",
    "failed": "failed",
    "wrong": "wrong",
}
"""The labels and their titles, in the order in which they are stacked."""

FLAGS = {
    "failed": "failed",
    "reasoning_open": "reasoning never closed",
    "refused": "refused or empty",
    "ran_out": "ran out of tokens before an answer",
    "unparsed": "no choice could be read",
    "wordy": "holds the right answer among too many words",
    "evidence_cut": "evidence cut away",
    "wrong_language": "wrong language",
    "bait": "took the bait",
    "gated": "keyword gate set it to 0",
    "known": "known without context",
}
"""The flags and their titles, in the order in which they are looked at for the label."""

STATES = {"yes": "yes", "partly": "partly", "no": "no", "unknown": "cannot be told"}
"""What a flag may be, and how that is said to people; only `evidence_cut` can be `partly`."""


@dataclass(frozen=True)
class Flag:
    """One flag of a record: a state (see `STATES`) and by what it is known."""

    state: str
    why: str

    def to_row(self) -> dict[str, str]:
        """As it stands in a row."""
        return {"state": self.state, "why": self.why}


def _flag(found: object, why: str, otherwise: str = "") -> Flag:
    return Flag("yes", why) if found else Flag("no", otherwise or why)


@dataclass(frozen=True)
class Case:
    """A record with all that its flags are told by.

    Attributes:
        row: its row of the predictions file.
        line: its line of the scores file.
        truths: the ground truths that count for the score.
        keywords: the answer keyword, if there is one.
        metric: the metric's name.
        language: the task's.
        asked: whether the task asks a question about a text (QA, multiple choice), so that it could be known without.
        clean: the scorer's `clean` option.
        evidence: texts that hold the evidence, as far as known.
        cut: whether the evidence was cut away (`evidence.cut_away`).
        blind: scores of the same question without context; None if it was not asked so.
        rotations: how many arrangements of the options were asked without context.
    """

    row: Mapping[str, Any]
    line: Mapping[str, Any]
    truths: Sequence[str]
    keywords: str | None
    metric: str
    language: str
    asked: bool
    clean: str | None = None
    evidence: Sequence[str] = ()
    cut: tuple[str, str] = ("unknown", "")
    blind: Sequence[float | None] | None = None
    rotations: int = 1

    @property
    def prediction(self) -> str:
        """The text that was scored."""
        text = self.row.get("pred")
        text = text if isinstance(text, str) else str(self.row.get("response") or "")
        return first_line(text) if self.clean == "first_line" else text

    @property
    def question(self) -> str:
        """The question."""
        return str(self.row.get("input") or self.row.get("question") or "")

    @property
    def score(self) -> float:
        """The score, 0 where there is none."""
        return float(self.line.get("score") or 0)

    @property
    def is_f1(self) -> bool:
        """Whether the metric is a token F1 of short answers."""
        return self.metric.startswith("qa_f1")

    @property
    def is_choice(self) -> bool:
        """Whether the task is multiple choice."""
        return self.metric == "choice"


def flags(case: Case) -> dict[str, Flag]:
    """All flags of a record, in the order of `FLAGS`."""
    found = {
        "failed": failed(case),
        "reasoning_open": reasoning_open(case),
        "refused": refused(case),
        "ran_out": ran_out(case),
        "unparsed": _flag(
            UNPARSED in case.line.get("flags", ()), "no letter in the answer", "not flagged by the score"
        ),
        "wordy": wordy(case),
        "evidence_cut": Flag(*case.cut),
        "wrong_language": other_language(case),
        "bait": bait(case),
        "gated": _flag(
            case.line.get("gated"),
            f"F1 {case.line.get('plain') or 0:.2f}, too few keywords",
            "the gate took nothing away",
        ),
        "known": known(case),
    }
    return {name: found[name] for name in FLAGS}


def label(case: Case, found: Mapping[str, Flag]) -> str:
    """The one label of a record: the first that applies, in this order.

    Failed; right (also without context, if known so); then how the answer ended: reasoning never closed, refused or
    empty, ran out, no choice read; then, what is wrong with it: the right answer among too many words, evidence cut
    away (also partly), wrong language, took the bait, gated; then partly right by its score, and wrong. An F1 that
    comes of stop words or the question's words alone is not partly right.
    """

    def yes(name: str) -> bool:
        return found[name].state in ("yes", "partly")

    if yes("failed"):
        return "failed"
    if case.score >= RIGHT:
        return "right_known" if yes("known") else "right"
    for name in ("reasoning_open", "refused", "ran_out", "unparsed"):
        if yes(name):
            return name
    if yes("wordy"):
        return "right_wordy"
    for name in ("evidence_cut", "wrong_language", "bait", "gated"):
        if yes(name):
            return name
    return "partly_right" if _partly(case) else "wrong"


def _partly(case: Case) -> bool:
    return case.score >= PARTLY and _shares(case)


def _shares(case: Case) -> bool:
    """Whether a short answer shares a word with a ground truth that says something; long ones surely do.

    A word of the question says nothing, unless the ground truth has no others (which of the two?).
    """
    if not case.is_f1:
        return True
    said = set(tokens(case.prediction, case.language))
    asked = set(tokens(case.question, case.language))
    for truth in case.truths:
        words = tokens(truth, case.language)
        telling = set(words) - empty_words(case.language)
        if not _is_yes_no(words) and said & (telling - asked or telling):
            return True
    return False


def failed(case: Case) -> Flag:
    """There is no answer: the engine failed, or the row has none."""
    error = case.row.get("error")
    return _flag(FAILED in case.line.get("flags", ()), str(error or "the row has no answer"), "there is an answer")


def reasoning_open(case: Case) -> Flag:
    """A thinking model did not come to the end of its reasoning."""
    closed = case.row.get("reasoning_closed")
    if closed is not None:
        return _flag(closed is False, "the reasoning has no end", "the reasoning was closed")
    text = case.prediction
    return _flag(
        "<think>" in text and "</think>" not in text, "<think> without </think>", "there is no reasoning in it"
    )


_CODE = frozenset("{}()[];")
"""Signs of which a right line of code may consist alone."""


def refused(case: Case) -> Flag:
    """The answer is empty or says that there is none, and that is not the right answer."""
    if failed(case).state == "yes":
        return Flag("no", "there is no answer at all")
    text = case.prediction
    if is_blank(text) and not (case.language == "code" and set(text) & _CODE):
        return Flag("yes", "empty" if not text.strip() else f"only “{text.strip()[:20]}”")
    if case.is_choice and UNPARSED not in case.line.get("flags", ()):
        return Flag("no", "a choice was read from it")
    sources = case.is_f1 or case.is_choice or case.asked
    words = refusal(text, sources=sources, later=not _partly(case))
    if words is None:
        return Flag("no", "it answers")
    if any(refusal(truth) for truth in case.truths):
        return Flag("no", "the right answer is that there is none")
    return Flag("yes", f"“{words}”")


def ran_out(case: Case) -> Flag:
    """The token limit came before an answer: in the first sentence of one that is not right, or before a choice."""
    reason = case.row.get("finish_reason")
    if reason is None:
        return Flag("unknown", "the predictions do not say how they ended")
    if reason != "length":
        return Flag("no", "the model ended by itself" if reason == "stop" else str(reason))
    if case.is_choice:
        return _flag(UNPARSED in case.line.get("flags", ()), "the token limit came first", "a choice was read from it")
    text = case.prediction
    if is_blank(text):
        return Flag("yes", "the token limit came before any word of an answer")
    if case.score >= RIGHT or _contains_truth(case):
        return Flag("no", "the right answer came before the token limit")
    if bait(case).state == "yes":
        return Flag("no", "the confusing fact's answer came before the token limit")
    if not case.is_f1:
        return Flag("no", "cut off at the token limit, after a beginning")
    return _flag(
        next(sentence_ends(text.strip()), None) is None,
        "the token limit came in its first sentence",
        "a sentence was ended before the limit",
    )


_YES_NO = frozenset(("yes", "no", "true", "false", "是", "是的", "否", "不是", "对", "错", "有", "没有"))


def _is_yes_no(words: Sequence[str]) -> bool:
    return bool(words) and _YES_NO.issuperset(word for word in words if word != "的")


def _first(words: Sequence[str]) -> str:
    """The first word, 是的 as 是."""
    return words[0].rstrip("的") if words else ""


def _contains_truth(case: Case) -> str | None:
    """A ground truth that stands whole in the answer; with a bare yes or no it has to begin.

    A lone character is too little to tell.
    """
    for truth in case.truths:
        words = tokens(truth, case.language)
        if _is_yes_no(words):
            if _first(tokens(case.prediction, case.language)) == _first(words):
                return truth
        elif len("".join(words)) > 1 and content(truth, case.language) and holds(case.prediction, truth, case.language):
            return truth
    return None


def wordy(case: Case) -> Flag:
    """The answer holds a ground truth as it stands, and is not right only since it says so much more."""
    if not case.is_f1:
        return Flag("no", "short answers only")
    truth = _contains_truth(case)
    if truth is None:
        return Flag("no", "the ground truth does not stand in it")
    n = len(tokens(case.prediction, case.language))
    return _flag(case.score < RIGHT, f"“{truth}” among {n} words", "the right answer, in few enough words")


def other_language(case: Case) -> Flag:
    """The answer is in another script than the task's language has."""
    if case.is_choice or not (case.asked or case.metric.startswith(("qa_f1", "rouge"))):
        return Flag("no", "a choice, a class or a number has no language")
    found, why = wrong_language(case.prediction, case.truths, case.language)
    return Flag("yes" if found else "no", why)


def bait(case: Case) -> Flag:
    """The answer says what a confusing fact says and the right answer does not.

    Its words are held against those that the fact has and neither the question, the ground truths and keywords, nor the
    text around the evidence have; stop words and question words are left out. A third of the answer's words (without
    the question's) have to be such.
    """
    facts = strings(case.row.get("confusing_facts"))
    if not facts:
        if "confusing_facts" in case.row:
            return Flag("no", "the question has no confusing fact")
        return Flag("unknown", "the predictions do not bring the confusing facts")
    known_words = [case.question, *case.truths, *([case.keywords] if case.keywords else []), *case.evidence]
    asked = set(content(case.question, case.language))
    said = [word for word in content(case.prediction, case.language) if word not in asked]
    for fact in facts:
        taken = _only_in(said, fact, known_words, case.language)
        if taken and len(taken) >= BAIT_SHARE * len(said):
            return Flag("yes", f"{listed(taken)} of “{fact if len(fact) <= 120 else fact[:119] + '…'}”")
    return Flag("no", "none of the confusing fact's own words, or few among others")


def _only_in(words: Sequence[str], fact: str, others: Sequence[str], language: str) -> list[str]:
    """The words that stand in a fact and in none of the other texts.

    Chinese words are sought in the texts as they stand: jieba may cut a name differently in a sentence and alone.
    """
    if kind(language) == "zh":
        inside, outside = normalize_zh(fact), [normalize_zh(text) for text in others]
        return [word for word in words if word in inside and not any(word in text for text in outside)]
    mine = set(tokens(fact, language)) - {token for text in others for token in tokens(text, language)}
    return [word for word in words if word in mine]


def known(case: Case) -> Flag:
    """The model answers the question without the context.

    A right choice may be luck: it counts only if the question was asked with the options in every rotation, each
    answered right. Where a question was asked several times without context, every answer has to be right.
    """
    if not case.asked:
        return Flag("no", "not a question about a text")
    if not case.blind:
        return Flag("unknown", "it was not asked without context")
    if any(score is None for score in case.blind):
        return Flag("unknown", "without context it failed")
    scores = [score for score in case.blind if score is not None]
    said = ", ".join(f"{score:.2f}" for score in scores[:ROTATIONS])
    if min(scores) < RIGHT:
        return Flag("no", f"scores {said} without context")
    if case.is_choice and case.rotations < ROTATIONS:
        return Flag(
            "unknown", f"right without context in {case.rotations} of {ROTATIONS} rotations of the options asked"
        )
    return Flag("yes", f"scores {said} without context")
