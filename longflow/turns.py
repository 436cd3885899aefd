"""Turns: a record may take more than one call of the model before there is an answer.

Most records take one. LongBench v2's chain of thought takes two: the model thinks about the document, then answers from
its own thoughts alone. Where a model compresses a context itself, it first summarises the context piece by piece, then
answers from the summaries. A turn's calls depend on the answers to the turn before; the last turn is one call, whose
answer is the prediction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from longflow.errors import UserError
from longflow.records import Record
from longflow.retrieval.chunks import words as words_of

Texts = Sequence[Sequence[str]]
"""The answers to the calls of the turns so far."""


@dataclass(frozen=True)
class Call:
    """One call of a turn: a prompt template and what it is filled in with.

    `max_new_tokens` None is the data set's own length of an answer.
    """

    template: str
    fields: Mapping[str, Any]
    max_new_tokens: int | None = None


class Turns(Protocol):
    """How a record is answered, in `count` turns."""

    count: int

    def calls(self, turn: int, record: Record, texts: Texts) -> list[Call]:
        """The calls of a turn, given the answers to those before. Raises UserError."""
        ...

    def kept(self, record: Record, texts: Texts) -> dict[str, Any]:
        """What of the answers on the way is kept in the prediction's row."""
        ...


def turns_of(setting: Mapping[str, Any] | None, template: str | None, language: str | None = None) -> Turns:
    """The turns of a setting's specification (None: the setting `full`).

    `template` is the prompt template of all records, None where each brings its own; `language` the data set's.
    """
    kind = setting["kind"] if setting is not None else None
    if setting is not None and kind == "cot":
        return ChainOfThought(int(setting["max_new_tokens"]))
    if setting is not None and kind == "summary":
        words, tokens = int(setting["piece_words"]), int(setting["max_new_tokens"])
        return Summary(template, words, tokens, setting.get("prompt"), language)
    return Direct(template)


def own_template(template: str | None, record: Record) -> str:
    """The prompt template of a record: the one given, or its own. Raises UserError without one."""
    found = template if template is not None else record.fields.get("template")
    if found is None:
        raise UserError("brings no prompt template, and the configuration names none; prepare it again")
    return str(found)


class Direct:
    """One call."""

    count = 1

    def __init__(self, template: str | None) -> None:
        self._template = template

    def calls(self, turn: int, record: Record, texts: Texts) -> list[Call]:
        """The record's prompt."""
        return [Call(own_template(self._template, record), record.fields)]

    def kept(self, record: Record, texts: Texts) -> dict[str, Any]:
        """Nothing."""
        return {}


class ChainOfThought:
    """LongBench v2's chain of thought: the second call shows the thoughts and not the document.

    Source: pred.py of THUDM/LongBench at 2e00731f8d0bff23dc4325161044d0ed8af94c1e, `--cot`. The thoughts are stripped
    of white space around them, as everything that a prompt there is filled in with.
    """

    count = 2

    def __init__(self, thought_tokens: int) -> None:
        self._tokens = thought_tokens

    def calls(self, turn: int, record: Record, texts: Texts) -> list[Call]:
        """The prompt that asks for thoughts, then the one that asks for the answer."""
        if turn == 0:
            return [Call(_named_template(record, "0shot_cot"), record.fields, self._tokens)]
        fields = {**record.fields, "response_cot": texts[0][0].strip()}
        return [Call(_named_template(record, "0shot_cot_ans"), fields)]

    def kept(self, record: Record, texts: Texts) -> dict[str, Any]:
        """The thoughts, under the reference's name."""
        return {"response_cot": texts[0][0] if texts else ""}


def _named_template(record: Record, name: str) -> str:
    templates = record.fields.get("templates")
    if not isinstance(templates, dict) or name not in templates:
        raise UserError(f"brings no prompt {name}, which a chain of thought needs; prepare it again")
    return str(templates[name])


SUMMARY_PROMPTS = {
    "en": "{piece}\nSummerize the context above. The max length of the summary is 200 words.",
    "zh": "{piece}\n请对上面的文本进行总结。最大长度为200个字。",
}
"""What asks for the summary of a piece, the reference's spelling included."""

_PARAGRAPHS = {"en": "Paragraph Summary{number} : ", "zh": "段落摘要{number} : "}
_PIECE_END = re.compile(r"[\n.。?？!！]")
_LOOK_AHEAD = 1500


class Summary:
    """The context compressed by the model itself, piece by piece, before it answers.

    This is what LongBench/summ/compress.py of THUDM/LongBench at 2e00731f8d0bff23dc4325161044d0ed8af94c1e means to do;
    as published it always returns the original context. A context shorter than two pieces stays as it is.
    """

    count = 2

    def __init__(
        self,
        template: str | None,
        piece_words: int,
        max_new_tokens: int,
        prompt: str | None,
        language: str | None = None,
    ) -> None:
        self._of_all = language
        self._template = template
        self._words = piece_words
        self._tokens = max_new_tokens
        self._prompt = prompt

    def calls(self, turn: int, record: Record, texts: Texts) -> list[Call]:
        """A call for each piece; then the record's prompt over the summaries."""
        language = self._language(record)
        if turn == 0:
            template = self._prompt or SUMMARY_PROMPTS[language]
            found = pieces(str(record.fields["context"]), self._words)
            return [Call(template, {**record.fields, "piece": piece}, self._tokens) for piece in found]
        fields = {**record.fields, "context": self._compressed(record, texts)}
        return [Call(own_template(self._template, record), fields)]

    def kept(self, record: Record, texts: Texts) -> dict[str, Any]:
        """The summaries that stood in for the context; null where it was short enough to stay."""
        return {"context_summary": self._compressed(record, texts) if texts and texts[0] else None}

    def _language(self, record: Record) -> str:
        return "zh" if "zh" in (record.fields.get("language"), self._of_all) else "en"

    def _compressed(self, record: Record, texts: Texts) -> str:
        if not texts[0]:
            return str(record.fields["context"])
        head = _PARAGRAPHS[self._language(record)]
        return "\n".join(head.format(number=i) + text.strip() for i, text in enumerate(texts[0], 1))


def pieces(context: str, words: int) -> list[str]:
    """A context in pieces of about `words` words (Chinese characters), none if it is not longer than one.

    The number of pieces is the number of words over `words`, rounded down. A piece has the average length in
    characters and goes on to the next end of a sentence or line, if there is one within 1,500 characters.
    """
    count = len(words_of(context)) // words
    if count < 2:
        return []
    size = max(1, len(context) // count)
    found = []
    start = 0
    while start < len(context):
        end = start + size
        match = _PIECE_END.search(context, end, end + _LOOK_AHEAD)
        end = match.end() if match else end
        found.append(context[start:end])
        start = end
    return found
