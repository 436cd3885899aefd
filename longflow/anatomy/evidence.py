"""Where in a context the evidence stands, and what of it a prompt's truncation kept.

Spans known to the record's builder are the evidence. Where there are none, the answer keyword is sought in the context,
then the answers, then the words of the keyword: where they stand is where a reader would have found the answer. A
context may be a megabyte: it is searched with `str.find`, a few times, and nothing of it is kept but short windows.
"""

from __future__ import annotations

import functools
import itertools
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longflow.anatomy.words import content, kind, listed, strip
from longflow.errors import UserError
from longflow.prompts import render
from longflow.records import Record, Span

WINDOW = 300
"""Characters of context shown around a piece of evidence."""

EXCERPTS = 3
"""Windows kept of a record."""

MANY = 50
"""A keyword that stands in more places than this says nothing about where the evidence is."""

WORDS = (2, 8)
"""A keyword of this many words that does not stand anywhere as a whole is sought word by word."""

_SAYS_NOTHING = frozenset({"yes", "no", "true", "false", "none", "unanswerable", "unknown", "是", "否", "不是", "没有"})


@dataclass(frozen=True)
class Kept:
    """The parts of a context that were sent: its first `head` characters, and those from `tail` on."""

    head: int
    tail: int
    length: int

    def share(self, span: Span) -> float:
        """How much of a span was sent, 0 to 1."""
        start, end = span
        sent = max(0, min(end, self.head) - start) + max(0, end - max(start, self.tail))
        return min(1.0, sent / max(1, end - start))

    def place(self, point: float) -> float | None:
        """Where a point of the context stands in what was sent (0 to 1); None if it was cut out."""
        total = self.head + self.length - self.tail
        if not total or self.head < point < self.tail:
            return None
        return (point if point <= self.head else point - self.tail + self.head) / total


def kept_part(row: Mapping[str, Any], record: Record, template: str | None) -> tuple[Kept | None, str]:
    """What was sent of a record's context, and why so; None where that cannot be told.

    Args:
        row: the record's row of the predictions file.
        record: the record.
        template: the prompt template, None if the record brings its own.
    """
    length = len(_context(record))
    if not length:
        return None, "no context was given"
    if "kept_head" not in row:
        return None, "the predictions were made elsewhere and do not say what was sent"
    if row["kept_head"] is None:
        return Kept(length, length, length), "nothing was cut"
    template = template if template is not None else record.fields.get("template")
    if template is None:
        return None, "the prompt template is not known"
    # What stands after the context in the prompt is found with an empty one, so that a megabyte is not copied.
    try:
        text, start = render(template, {**record.fields, "context": ""})
    except UserError:
        return None, "the prompt template does not fit the record"
    if start is None or start != row.get("context_start") or _contexts(template) != 1:
        return None, "the prompt was made of another template"
    head = min(length, max(0, row["kept_head"] - start))
    tail = max(head, length - max(0, row["kept_tail"] - (len(text) - start)))
    return Kept(
        head, min(length, tail), length
    ), f"{head + length - min(length, tail)} of {length} characters were sent"


def _contexts(template: str) -> int:
    return sum(name == "context" for _, name, _, _ in string.Formatter().parse(template))


def _context(record: Record) -> str:
    return str(record.fields.get("context") or "")


@dataclass(frozen=True)
class Evidence:
    """The evidence of a record in its context.

    Attributes:
        how: `spans` (known to the builder), `keyword` (an answer or keyword found as it stands: each piece is one of
            its places), `words` (each piece is a word of it), or None.
        why: how it was found, or why not.
        pieces: stretches of the context, in characters.
        main: the piece that holds the answer, where a position has to be one number.
        mark: what a reader's eye should find within `main`.
        names: of the pieces, for `words`.
    """

    how: str | None
    why: str
    pieces: tuple[Span, ...] = ()
    main: Span | None = None
    mark: Span | None = None
    names: tuple[str, ...] = ()


def find(record: Record, keywords: Sequence[str], question: str, language: str) -> Evidence:
    """The evidence of a record.

    Args:
        record: with its context, and with spans if its builder knew them.
        keywords: what to seek, the best first: the answer keyword, then the answers.
        question: of several places of a keyword the one counts that has most words of the question around it.
        language: of the task.
    """
    context = _context(record)
    if not context:
        return Evidence(None, "no context was given")
    sought = [keyword for text in keywords if (keyword := strip(text)) and _says_something(keyword, language)]
    if record.evidence:
        return _from_spans(context, record.evidence, sought)
    if not sought:
        return Evidence(
            None, "the answer is not a text that could be sought" if keywords else "nothing to seek is known"
        )
    text = _Text(context)
    common = None
    for keyword in dict.fromkeys(sought):
        places = list(itertools.islice(text.places(keyword), MANY + 1))
        if len(places) > MANY:
            common = keyword
        elif places:
            words = content(question, language)
            main = max(places, key=lambda place: (_around(context, place, words), -place[0]))
            return Evidence("keyword", f"“{_short(keyword)}”", tuple(places), main, main)
    if common is not None:
        return Evidence(None, f"“{_short(common)}” stands in more than {MANY} places")
    return _from_words(text, sought[0], language)


class _Text:
    """A context to search in, as it is and, if that is not enough, in lower case; which costs more than the search."""

    def __init__(self, text: str) -> None:
        self.text = text

    @functools.cached_property
    def folded(self) -> str:
        return fold(self.text)

    def places(self, keyword: str) -> Iterator[Span]:
        """The places of a keyword as it is written; if there is none, in any case and over line ends."""
        found = _places(self.text, keyword)
        first = next(found, None)
        if first is not None:
            return itertools.chain([first], found)
        if keyword.lower() == keyword.upper() and " " not in keyword:  # a word without letters that have a case
            return iter(())
        return _places(self.folded, fold(keyword))


def _says_something(keyword: str, language: str) -> bool:
    """Whether a keyword could tell a place: not yes or no, not stop words alone, not a lone character."""
    if keyword.lower() in _SAYS_NOTHING:
        return False
    return len(keyword) > 1 and (bool(content(keyword, language)) or kind(language) == "zh")


def _from_spans(context: str, spans: Sequence[Span], sought: Sequence[str]) -> Evidence:
    main, mark = spans[-1], None
    for span in spans:
        text = _Text(context[span[0] : span[1]])
        for keyword in sought:
            if (place := next(text.places(keyword), None)) is not None:
                mark = (span[0] + place[0], span[0] + place[1])
                return Evidence("spans", "as its builder marked it", tuple(spans), span, mark)
    return Evidence("spans", "as its builder marked it", tuple(spans), main, mark)


def _from_words(text: _Text, keyword: str, language: str) -> Evidence:
    """A keyword that stands nowhere as a whole, by its words: the window with most of them is the place."""
    nowhere = f"“{_short(keyword)}” does not stand in the context"
    words = content(keyword, language)
    if not WORDS[0] <= len(words) <= WORDS[1]:
        return Evidence(None, nowhere)
    found: dict[str, list[Span]] = {}
    for word in words:
        places = list(itertools.islice(text.places(word), MANY + 1))
        if 0 < len(places) <= MANY:
            found[word] = places
    if len(found) * 2 < len(words) or len(found) < 2:
        return Evidence(None, f"{nowhere}, and of its words too few tell a place")
    marks = sorted((place, word) for word, places in found.items() for place in places)
    best, most = marks[0][0], 0
    for i, ((start, _), _) in enumerate(marks):
        near = {word for (a, _), word in marks[i : i + MANY] if a < start + WINDOW}
        if len(near) > most:
            best, most = marks[i][0], len(near)
    if most < 2:
        return Evidence(None, f"{nowhere}, and its words stand apart")
    pieces = tuple(min(found[word], key=lambda place: abs(place[0] - best[0])) for word in found)
    near_best = [piece for piece in pieces if abs(piece[0] - best[0]) <= WINDOW]
    main = (min(start for start, _ in near_best), max(end for _, end in near_best))
    return Evidence("words", f"the words {listed(found)} of “{_short(keyword)}”", pieces, main, main, tuple(found))


def fold(text: str) -> str:
    """A text in lower case with spaces for line ends, every character at its old place."""
    lower = text.lower()
    if len(lower) != len(text):  # a few capitals have two characters in lower case
        lower = "".join(low if len(low := character.lower()) == 1 else character for character in text)
    return lower.replace("\n", " ")


def _places(text: str, wanted: str) -> Iterator[Span]:
    """The places of a keyword in a text, not within a longer word or number."""
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        if not (_joined(text, at) or _joined(text, end)):
            yield at, end
        at = text.find(wanted, at + 1)


def _joined(text: str, at: int) -> bool:
    """Whether the characters on both sides of a place belong to one word; Chinese words are not told apart."""
    if not 0 < at < len(text):
        return False
    left, right = text[at - 1], text[at]
    return left.isalnum() and right.isalnum() and left < "\u2e80" and right < "\u2e80"


def _around(context: str, place: Span, words: Sequence[str]) -> int:
    """How many of the words (in lower case) stand around a place."""
    window = context[max(0, place[0] - WINDOW // 2) : place[1] + WINDOW // 2].lower()
    return sum(word in window for word in words)


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def cut_away(evidence: Evidence, kept: Kept | None, why: str) -> tuple[str, str]:
    """Whether truncation cut the evidence away (`yes`, `partly`, `no` or `unknown`), and by what that is known."""
    if kept is None:
        return "unknown", why
    if kept.head >= kept.tail:
        return "no", why
    if evidence.how is None:
        return "unknown", evidence.why
    shares = [kept.share(piece) for piece in evidence.pieces]
    whole, n = sum(share == 1 for share in shares), len(shares)
    if evidence.how == "keyword":
        return ("no" if whole else "yes"), f"{evidence.why}: {whole} of {n} places were sent"
    if evidence.how == "words":
        lost = [name for name, share in zip(evidence.names, shares, strict=True) if share < 1]
        reason = f"{evidence.why}: cut away are {listed(lost)}" if lost else f"{evidence.why} were sent"
        return ("no" if not lost else "yes" if len(lost) == n else "partly"), reason
    state = "no" if whole == n else "yes" if not any(shares) else "partly"
    pieces = "piece" if n == 1 else "pieces"
    return state, f"{whole} of {n} {pieces} of evidence sent whole, {sum(0 < share < 1 for share in shares)} in part"


@dataclass(frozen=True)
class Position:
    """Where the evidence stands, as a fraction (0 first, 1 last) of the context and of what was sent of it."""

    before: float | None = None
    after: float | None = None
    pieces: tuple[float, ...] = field(default=())

    def to_row(self) -> dict[str, Any]:
        """As it stands in a row: `pieces` are the middles of all pieces before truncation."""
        return {"before": self.before, "after": self.after, "pieces": list(self.pieces)}


def position(evidence: Evidence, kept: Kept | None, length: int) -> Position:
    """Where the middle of the evidence that holds the answer stands, before truncation and after it."""
    if evidence.main is None or not length:
        return Position()
    middle = sum(evidence.mark or evidence.main) / 2
    after = None if kept is None else kept.place(middle)
    pieces = tuple(round(sum(piece) / 2 / length, 4) for piece in evidence.pieces)
    return Position(round(middle / length, 4), None if after is None else round(after, 4), pieces)


def excerpts(record: Record, evidence: Evidence, kept: Kept | None) -> list[dict[str, Any]]:
    """Windows of context for a person to read, at most three: the evidence, the answer's place first, then bait.

    Each has `kind` (`evidence`, `keyword` or `confusing`), `start` in the context, `text`, `mark` (what to look for,
    in characters of the text), and `kept`: whether all of the mark was sent, None where that cannot be told.
    """
    context = _context(record)
    wanted: list[tuple[str, Span]] = []
    if evidence.main is not None:
        name = "evidence" if evidence.how == "spans" else "keyword"
        wanted = [(name, evidence.mark or evidence.main)]
        if evidence.how != "words":
            wanted += [(name, piece) for piece in evidence.pieces if piece != evidence.main]
    wanted = wanted[: EXCERPTS - 1] + [("confusing", span) for span in record.confusing] + wanted[EXCERPTS - 1 :]
    return [_excerpt(context, name, span, kept) for name, span in wanted[:EXCERPTS]]


def _excerpt(context: str, name: str, span: Span, kept: Kept | None) -> dict[str, Any]:
    size = min(span[1] - span[0], WINDOW)
    start = max(0, min(span[0] - (WINDOW - size) // 2, len(context) - WINDOW))
    text = context[start : start + WINDOW]
    return {
        "kind": name,
        "start": start,
        "text": text,
        "mark": [span[0] - start, min(span[1] - start, len(text))],
        "kept": None if kept is None else kept.share(span) == 1,
    }


def around(record: Record, evidence: Evidence) -> list[str]:
    """The texts that hold the evidence: its spans, or the sentences around the places of the keyword."""
    context = _context(record)
    if evidence.how == "spans":
        return [context[start:end] for start, end in evidence.pieces]
    return [_sentence(context, place) for place in evidence.pieces[:EXCERPTS]]


_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？\n]")


def _sentence(context: str, place: Span) -> str:
    """The sentence around a place, at most half a window of it on either side."""
    before = context[max(0, place[0] - WINDOW // 2) : place[0]]
    after = context[place[1] : place[1] + WINDOW // 2]
    start = max((end.end() for end in _SENTENCE_END.finditer(before)), default=0)
    end = _SENTENCE_END.search(after)
    return before[start:] + context[place[0] : place[1]] + after[: end.start() if end else None]
