"""Settings: the same questions, asked with another context.

A setting turns the records of a data set into records of its own, before any prompt is made of them: with no context at
all, to see what a model knows without reading, or with the parts of it that retrieval finds. Everything after that is
the same for all settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from longflow.benchmarks import Task
from longflow.errors import UserError
from longflow.records import Record
from longflow.retrieval import RagOptions, moved_spans, retrieve

FULL = "full"
"""The setting that every benchmark has: its own records as they are."""

VERSION = 1
"""Raised when a change of code changes the records of a setting."""


class NoContext(BaseModel):
    """The same prompt with an empty context; LongBench v2 has a prompt of its own for it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["no_context"] = Field(description="no_context: the same prompt with an empty context.")


KINDS: dict[str, type[BaseModel]] = {"no_context": NoContext, "rag": RagOptions}
"""The kinds of settings, by what an entry's `kind` says."""


def spec_of(setting: BaseModel) -> dict[str, Any]:
    """What of a setting's entry may change its records; where and on what it is computed may not."""
    return setting.spec() if isinstance(setting, RagOptions) else setting.model_dump()


def fits(task: Task) -> bool:
    """Whether other contexts make sense for a data set: for questions about a text, not for summaries or code."""
    return "QA" in task.category or task.metric == "choice"


def apply(records: Iterable[Record], setting: BaseModel) -> Iterator[Record]:
    """The records of a setting, one for each record, in their order. Raises UserError naming the record."""
    for record in records:
        if isinstance(setting, NoContext):
            yield _with_context(record, "", "0shot_no_context")
        elif isinstance(setting, RagOptions):
            query = str(record.fields.get("input") or record.fields.get("question") or "")
            context, chunks = retrieve(record.fields, query, setting)
            evidence, confusing = moved_spans(record, chunks)
            made = _with_context(record, context, "0shot_rag")
            yield replace(made, evidence=tuple(evidence), confusing=tuple(confusing))
        else:
            raise UserError(f"setting of kind {type(setting).__name__}: nothing is known to be done for it")


def _with_context(record: Record, context: str, template: str) -> Record:
    """A record with another context and, if it brings several templates, with the one for it."""
    fields: dict[str, Any] = {**record.fields, "context": context}
    templates = record.fields.get("templates")
    if isinstance(templates, dict) and template in templates:
        fields["template"] = templates[template]
    return replace(record, fields=fields, evidence=(), confusing=())
