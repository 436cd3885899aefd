"""Settings: the same questions, asked with another context or in another way.

Two kinds turn the records of a data set into records of their own, before any prompt is made of them: with no context
at all, to see what a model knows without reading, or with the parts of it that retrieval finds. Two kinds leave the
records alone and ask in more than one turn (`turns.py`): a chain of thought, and a context that the model itself
compresses. Everything after that is the same for all settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from longflow.benchmarks import Task
from longflow.errors import UserError
from longflow.prompts import template_error
from longflow.records import DOCUMENT, ROTATION, Record, document_id
from longflow.retrieval import RagOptions, moved_spans, retrieve

FULL = "full"
"""The setting that every benchmark has: its own records as they are."""

CHOICES = ("A", "B", "C", "D")

VERSION = 2
"""Raised when a change of code changes the records of a setting."""


class NoContext(BaseModel):
    """The same prompt with an empty context; LongBench v2 has a prompt of its own for it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["no_context"] = Field(description="no_context: the same prompt with an empty context.")
    rotations: bool = Field(
        False,
        description="Ask a question with choices once with each choice as (A), so that knowing is told from guessing.",
    )


class ChainOfThought(BaseModel):
    """LongBench v2's `cot`: the model thinks about the document first, then answers from its thoughts."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["cot"] = Field(description="cot: two calls, the second without the document.")
    max_new_tokens: int = Field(1024, ge=1, description="Tokens of the thoughts.")


class Summary(BaseModel):
    """The context is replaced by summaries that the model itself makes of its pieces."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["summary"] = Field(description="summary: a context of the model's own summaries.")
    piece_words: int = Field(500, ge=1, description="Words (Chinese characters) of a piece, about.")
    max_new_tokens: int = Field(200, ge=1, description="Tokens of a summary.")
    prompt: str | None = Field(
        None, description="A prompt of one's own with {piece}, for all languages; null: the reference's."
    )

    @field_validator("prompt")
    @classmethod
    def _shows_the_piece(cls, value: str | None) -> str | None:
        if value is not None and (wrong := template_error(value, {"piece"}, needed="piece")):
            raise ValueError(wrong)
        return value


KINDS: dict[str, type[BaseModel]] = {
    "no_context": NoContext,
    "rag": RagOptions,
    "cot": ChainOfThought,
    "summary": Summary,
}
"""The kinds of settings, by what an entry's `kind` says."""


def spec_of(setting: BaseModel) -> dict[str, Any]:
    """What of a setting's entry may change its records; where and on what it is computed may not."""
    return setting.spec() if isinstance(setting, RagOptions) else setting.model_dump()


def longest_call(setting: BaseModel | None) -> int:
    """Tokens of the longest call over a whole prompt, beside the answer's; 0 where the answer is the only one."""
    return setting.max_new_tokens if isinstance(setting, ChainOfThought) else 0


def has_records(setting: BaseModel) -> bool:
    """Whether a setting makes records of its own; otherwise the data set's are used."""
    return isinstance(setting, NoContext | RagOptions)


def fits(setting: BaseModel, task: Task) -> bool:
    """Whether a setting makes sense for a data set.

    Other contexts do for questions about a text, not for code or a list of examples; a compressed one also for
    summaries, as in LongBench. A chain of thought has prompts in LongBench v2 alone.
    """
    if isinstance(setting, ChainOfThought):
        return task.benchmark == "longbench_v2"
    asks = "QA" in task.category or task.metric == "choice"
    return asks or (isinstance(setting, Summary) and task.category == "Summarization")


def apply(records: Iterable[Record], setting: BaseModel) -> Iterator[Record]:
    """The records of a setting, one for each record, in their order. Raises UserError naming the record."""
    for record in records:
        if isinstance(setting, NoContext):
            without = _with_context(record, "", "0shot_no_context")
            yield from _rotated(without) if setting.rotations and "choice_A" in record.fields else [without]
        elif isinstance(setting, RagOptions):
            query = str(record.fields.get("input") or record.fields.get("question") or "")
            context, chunks = retrieve(record.fields, query, setting)
            evidence, confusing = moved_spans(record, chunks)
            made = _with_context(record, context, "0shot_rag")
            yield replace(made, evidence=tuple(evidence), confusing=tuple(confusing))
        else:
            raise UserError(f"setting of kind {type(setting).__name__}: nothing is known to be done for it")


def rows_per_record(setting: BaseModel | None, task: Task) -> int:
    """Records that a setting makes of one."""
    rotates = isinstance(setting, NoContext) and setting.rotations and task.metric == "choice"
    return len(CHOICES) if rotates else 1


def _rotated(record: Record) -> Iterator[Record]:
    """A question with choices once for each choice that can come first, the right letter moving along."""
    for shift in range(len(CHOICES)):
        fields = {**record.fields, ROTATION: shift}
        for index, letter in enumerate(CHOICES):
            moved = CHOICES[(index + shift) % len(CHOICES)]
            fields[f"choice_{letter}"] = record.fields[f"choice_{moved}"]
            if record.fields["answer"] == moved:
                fields["answer"] = letter
        yield replace(record, id=f"{record.id}-{shift}", fields=fields)


def _with_context(record: Record, context: str, template: str) -> Record:
    """A record with another context and, if it brings several templates, with the one for it.

    It still is a question about the document that it was.
    """
    document = document_id(str(record.fields.get("context", "")))
    fields: dict[str, Any] = {**record.fields, "context": context, DOCUMENT: document}
    templates = record.fields.get("templates")
    if isinstance(templates, dict) and template in templates:
        fields["template"] = templates[template]
    return replace(record, fields=fields, evidence=(), confusing=())
