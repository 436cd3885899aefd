"""Builds long contexts around questions, the way LV-Eval does: evidence and confusing facts among distractors.

The same question is asked at every length level, with the same evidence at the same relative depth; what grows is
the number of distractors around it, and a longer level keeps the shorter one's. Everything follows from a seed, byte
for byte: `random.Random` seeded with a text gives the same numbers on every machine.

Two files feed a data set: one with its questions and their evidence, one with distractor documents in its language.
docs/demo.md describes both.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from longflow.errors import UserError
from longflow.records import Record, Span, question_id

GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
LOOK_AHEAD = 32
"""Documents tried for the one that is shortened to close the last gap of a context."""
TOLERANCE = 0.05
"""How far, as a share of the level, a context may miss its level before that is an error."""

_HEADING = {"en": "### Passage {}\n", "zh": "### 文章{}\n"}
_SENTENCE_END = {"en": re.compile(r"(?<=[.!?])\s+"), "zh": re.compile(r"(?<=[。！？])\s*")}
_JOINT = {"en": " ", "zh": ""}
_UNIT = {"en": "words", "zh": "characters"}
_ARTICLES = ("a ", "an ", "the ")
Model = TypeVar("Model", bound=BaseModel)

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Question(BaseModel):
    """A question with what its answer rests on. `evidence` are whole documents, `confusing_facts` short passages."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: str = Field(min_length=1)
    answers: list[str] = Field(min_length=1)
    answer_keywords: str | None = None
    evidence: list[str] = Field(min_length=1)
    confusing_facts: list[str] = []

    def gives_away(self, text: str) -> bool:
        """Whether a text holds an answer, so that it cannot serve as a distractor. Case and articles are ignored."""
        folded = text.casefold()
        return any(answer in folded for answer in map(_bare, self.answers))


class Questions(BaseModel):
    """A file of questions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    language: str = Field(pattern="^(en|zh)$")
    questions: list[Question] = Field(min_length=1)


class Kind(BaseModel):
    """One pattern of generated documents.

    `subject` names the word lists whose combinations tell the documents of this kind apart: no combination is used
    twice, so no document comes twice if its sentences name the whole subject. A document takes one alternative out of
    each list in `sentences`. Placeholders name word lists; a trailing digit asks for another word of the same list.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: list[str] = Field(min_length=1)
    sentences: list[list[str]] = Field(min_length=1)


class Generator(BaseModel):
    """Word lists and patterns from which distractor documents are generated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: dict[str, list[str]]
    kinds: list[Kind] = Field(min_length=1)


class Distractors(BaseModel):
    """A file of distractor documents, with or without a generator of more."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    language: str = Field(pattern="^(en|zh)$")
    documents: list[str] = []
    generator: Generator | None = None

    def stream(self, seed: str, others: Sequence[str] = ()) -> Iterator[str]:
        """Yield every document once, in an order that `seed` determines: written ones and `others` first.

        Generated documents follow, kind by kind in turn, until every combination of subjects is used up.
        """
        written = [*self.documents, *others]
        random.Random(f"{seed}/written").shuffle(written)
        yield from dict.fromkeys(written)
        if self.generator is not None:
            yield from _generate(self.generator, self.language, f"{seed}/generated")


@dataclass
class Piece:
    """A stretch of a context: a text, what stands before it, and what it is."""

    text: str
    role: Literal["distractor", "evidence", "confusing"] = "distractor"
    before: str = ""
    order: int = 0
    """Which of the question's evidence texts or confusing facts it is."""


@dataclass(frozen=True)
class Level:
    """A length level: its name, as in file names, and its size in the units of the data set's language."""

    name: str
    units: int


def read_questions(path: str | Path) -> Questions:
    """Read a file of questions (YAML). Raises UserError naming the file and the key."""
    return _read(path, Questions)


def read_distractors(path: str | Path) -> Distractors:
    """Read a file of distractor documents (YAML). Raises UserError naming the file and the key."""
    distractors = _read(path, Distractors)
    for number, kind in enumerate(distractors.generator.kinds if distractors.generator else (), 1):
        asked = {_list_name(name) for choices in kind.sentences for text in choices for name in _placeholders(text)}
        missing = (asked | set(kind.subject)) - set(distractors.generator.words if distractors.generator else ())
        if missing:
            raise UserError(f"{path}: generator.kinds, number {number}: no word list {sorted(missing)[0]!r}")
    return distractors


def measure(text: str, language: str) -> int:
    """The length of a text as LV-Eval counts it: words for English, characters without white space for Chinese."""
    return len(text.split()) if language == "en" else sum(map(len, text.split()))


def sentences(text: str, language: str) -> list[str]:
    """The sentences of a text, in order."""
    return [part for part in _SENTENCE_END[language].split(text) if part]


def passage_records(
    questions: Questions, distractors: Distractors, dataset: str, level: Level, seed: int, n: int
) -> Iterator[Record]:
    """Yield one record for each of the first `n` questions: a context of numbered passages, mixed by seed.

    The evidence of the other questions serves as distractors too. Over the questions, evidence is spread evenly over
    the depth of the context; within one, its passages and the confusing facts keep apart. Raises UserError if there
    are fewer than `n` questions, if a level is too short for a question, or if the documents do not fill it.
    """
    if n > len(questions.questions):
        raise UserError(f"{dataset}: {n} records were asked for, but there are {len(questions.questions)} questions")
    language = questions.language
    first_depth = random.Random(f"{seed}/{dataset}/depth").random()

    def cost(text: str, position: int) -> int:
        return measure(_HEADING[language].format(position + 1) + text, language)

    for index, question in enumerate(questions.questions[:n]):
        name = f"{seed}/{dataset}/{question.question}"
        inserted = _inserted(question)
        others = [text for other in questions.questions if other is not question for text in other.evidence]
        distractor_pieces = [
            Piece(text)
            for text in _fill(
                _without_answers(distractors.stream(name, others), question),
                level,
                inserted,
                cost,
                language,
                seed=name,
                where=f"{dataset}, level {level.name}, question {question.question!r}",
            )
        ]
        # The depth of the evidence advances by the golden ratio, which spreads any number of questions evenly; the
        # question's other passages follow at equal distances, wrapping around at the end.
        depths = [(first_depth + index * GOLDEN_RATIO + i / len(inserted)) % 1 for i in range(len(inserted))]
        passages = _insert(distractor_pieces, inserted, depths)
        for number, passage in enumerate(passages, 1):
            passage.before = ("" if number == 1 else "\n\n") + _HEADING[language].format(number)
        yield _record(question, dataset, language, level, index, passages)


def needle_records(
    questions: Questions, distractors: Distractors, dataset: str, level: Level, seed: int, n: int
) -> Iterator[Record]:
    """Yield `n` records that ask the file's one question, its needle ever deeper in one and the same haystack.

    The haystack is running text without passage numbers, confusing facts at fixed places in it; the needle stands
    between two sentences, first before the first one, last after the last one (for `n` = 1 in the middle). Records
    therefore share their context up to the needle. Raises UserError if the level has fewer gaps between sentences
    than `n`, or if the file does not have exactly one question with one evidence text.
    """
    if len(questions.questions) != 1 or len(questions.questions[0].evidence) != 1:
        raise UserError(f"{dataset}: a needle set has exactly one question with one evidence text")
    question, language = questions.questions[0], questions.language
    needle, *facts = _inserted(question)
    paragraphs = _fill(
        _without_answers(distractors.stream(f"{seed}/{dataset}/{question.question}"), question),
        level,
        [needle, *facts],
        lambda text, _: measure(text, language),
        language,
        seed=f"{seed}/{dataset}/{question.question}",
        where=f"{dataset}, level {level.name}",
    )
    hay = [
        Piece(sentence, before=_JOINT[language] if i else "\n\n")
        for paragraph in paragraphs
        for i, sentence in enumerate(sentences(paragraph, language))
    ]
    first_depth = random.Random(f"{seed}/{dataset}/depth").random()
    hay = _insert(hay, facts, [(first_depth + i * GOLDEN_RATIO) % 1 for i in range(len(facts))])
    positions = len(hay) + 1
    if n > positions:
        raise UserError(
            f"{dataset}: {n} records were asked for, but level {level.name} has room for {positions} needle positions"
        )
    for index in range(n):
        place = (index * (positions - 1) + (n - 1) // 2) // (n - 1) if n > 1 else positions // 2
        text = [replace(piece) for piece in (*hay[:place], needle, *hay[place:])]
        for piece, following in itertools.pairwise(text):
            # What is inserted joins the paragraph it follows; at the very start, the paragraph that follows it.
            if following.role != "distractor" or (piece is text[0] and piece.role != "distractor"):
                following.before = _JOINT[language]
        text[0].before = ""
        yield _record(question, dataset, language, level, index, text)


def _inserted(question: Question) -> list[Piece]:
    """The evidence of a question, then its confusing facts."""
    evidence = [Piece(text, "evidence", order=i) for i, text in enumerate(question.evidence)]
    return evidence + [Piece(text, "confusing", order=i) for i, text in enumerate(question.confusing_facts)]


def _insert(pieces: list[Piece], inserted: list[Piece], depths: list[float]) -> list[Piece]:
    """The pieces with others inserted at depths between 0 (before the first) and 1 (after the last)."""
    gaps = [int(depth * (len(pieces) + 1)) for depth in depths]
    by_depth = sorted(range(len(inserted)), key=depths.__getitem__)
    result: list[Piece] = []
    for gap in range(len(pieces) + 1):
        result += [inserted[i] for i in by_depth if gaps[i] == gap]
        result += pieces[gap : gap + 1]
    return result


def _record(
    question: Question, dataset: str, language: str, level: Level, index: int, pieces: Sequence[Piece]
) -> Record:
    """A record with LV-Eval's fields; its context is the pieces in their order."""
    spans: dict[str, dict[int, Span]] = {"evidence": {}, "confusing": {}, "distractor": {}}
    end = 0
    for piece in pieces:
        start = end + len(piece.before)
        end = start + len(piece.text)
        spans[piece.role][piece.order] = (start, end)
    context = "".join(piece.before + piece.text for piece in pieces)
    return Record(
        id=f"{dataset}_{level.name}_{index:04d}",
        question_id=question_id(dataset, question.question, question.answers),
        fields={
            "input": question.question,
            "context": context,
            "answers": question.answers,
            "length": measure(context, language),
            "dataset": dataset,
            "language": language,
            "answer_keywords": question.answer_keywords,
            "confusing_facts": question.confusing_facts or None,
            "all_classes": None,
        },
        evidence=tuple(spans["evidence"][i] for i in sorted(spans["evidence"])),
        confusing=tuple(spans["confusing"][i] for i in sorted(spans["confusing"])),
    )


def _fill(
    documents: Iterator[str],
    level: Level,
    inserted: Sequence[Piece],
    cost: Callable[[str, int], int],
    language: str,
    seed: str,
    where: str,
) -> list[str]:
    """Distractors that fill a level together with what is inserted, in the order they stand in the context.

    Whole documents while they fit, then the beginning of one, cut after a sentence: of the next few documents the one
    whose beginning fits best. `cost(text, i)` is what a text takes up as the i-th of the context.

    Written documents come first in the stream. Each document gets a random rank as it comes, so that they end up all
    over the context, and so that a longer level has the shorter one's documents in the same order.
    """
    unit = _UNIT[language]
    taken = sum(cost(piece.text, i) for i, piece in enumerate(inserted))
    room = level.units - taken
    if room < 0:
        raise UserError(f"{where}: the evidence and confusing facts alone take {taken} {unit}; choose a longer level")
    chosen: list[str] = []
    waiting: list[str] = []
    for document in documents:
        size = cost(document, len(inserted) + len(chosen))
        if size > room:
            waiting = [document, *itertools.islice(documents, LOOK_AHEAD - 1)]
            break
        chosen.append(document)
        room -= size
    best, missing = "", room
    for document in waiting:
        beginning = ""
        for sentence in sentences(document, language):
            beginning += (_JOINT[language] if beginning else "") + sentence
            off = abs(room - cost(beginning, len(inserted) + len(chosen)))
            if off < missing:
                best, missing = beginning, off
    if missing > TOLERANCE * level.units:
        raise UserError(f"{where}: the documents fill {level.units - missing} of {level.units} {unit}; add distractors")
    chosen += [best] if best else []
    generator = random.Random(f"{seed}/order")
    ranks = [generator.random() for _ in chosen]
    return [chosen[i] for i in sorted(range(len(chosen)), key=ranks.__getitem__)]


def _without_answers(documents: Iterable[str], question: Question) -> Iterator[str]:
    """The documents that do not hold an answer to the question and are not its evidence."""
    return (text for text in documents if not question.gives_away(text) and text not in question.evidence)


def _bare(answer: str) -> str:
    """An answer in small letters without a leading article."""
    folded = answer.casefold().strip()
    return next((folded.removeprefix(article) for article in _ARTICLES if folded.startswith(article)), folded)


def _generate(generator: Generator, language: str, seed: str) -> Iterator[str]:
    """Every document that the patterns can make, each subject once, the kinds in turn."""
    walks = [_subjects(kind, generator.words, f"{seed}/{i}") for i, kind in enumerate(generator.kinds)]
    for row in itertools.zip_longest(*walks):
        for i, (kind, subject) in enumerate(zip(generator.kinds, row, strict=True)):
            if subject is not None:
                rng = random.Random(f"{seed}/{i}/{'/'.join(subject)}")
                yield _compose(kind, subject, generator.words, rng, language)


def _subjects(kind: Kind, words: dict[str, list[str]], seed: str) -> Iterator[tuple[str, ...]]:
    """Every combination of the kind's subject words once, in an order that `seed` determines.

    A step that has no factor in common with the number of combinations visits them all without a list of them.
    """
    lists = [words[name] for name in kind.subject]
    total = math.prod(map(len, lists))
    rng = random.Random(seed)
    place = rng.randrange(total)
    step = next(s for s in iter(lambda: rng.randrange(1, total + 1), None) if math.gcd(s, total) == 1)
    for _ in range(total):
        rest, subject = place, []
        for choices in lists:
            rest, which = divmod(rest, len(choices))
            subject.append(choices[which])
        yield tuple(subject)
        place = (place + step) % total


def _compose(kind: Kind, subject: Sequence[str], words: dict[str, list[str]], rng: random.Random, language: str) -> str:
    """One document about a subject. A word of a list is used under one placeholder only."""
    values = dict(zip(kind.subject, subject, strict=True))
    text = _JOINT[language].join(rng.choice(choices) for choices in kind.sentences)
    for name in _placeholders(text):
        if name not in values:
            used = {values[other] for other in values if _list_name(other) == _list_name(name)}
            free = [word for word in words[_list_name(name)] if word not in used]
            values[name] = rng.choice(free or words[_list_name(name)])
    return text.format_map(values)


def _placeholders(text: str) -> list[str]:
    """The names in braces, in order."""
    return [name for _, name, _, _ in string.Formatter().parse(text) if name]


def _list_name(placeholder: str) -> str:
    """The word list a placeholder draws from: its name without trailing digits."""
    return placeholder.rstrip(string.digits)


def _read(path: str | Path, model: type[Model]) -> Model:
    """A YAML file checked against a model. Raises UserError naming the file and the key."""
    try:
        value: Any = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_LOADER)
        return model.model_validate(value)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.start + 1})") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML ({error})") from error
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part + 1) if isinstance(part, int) else part for part in fault["loc"])
        raise UserError(f"{path}: {key or 'whole file'}: {fault['msg']} (counting from 1)") from error
