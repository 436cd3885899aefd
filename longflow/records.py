"""What a benchmark asks and what a model answers: the two row types that travel between stages.

A records file and a predictions file are JSONL, one row a line, in the benchmark's order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longflow.errors import UserError
from longflow.jsonio import canonical, read_jsonl

Span = tuple[int, int]
"""Start and end (exclusive) of a stretch of a record's context, in characters."""


KEPT_FIELDS = (*("_id", "domain", "sub_domain", "difficulty", "choice_A", "choice_B", "choice_C", "choice_D"),)
"""Fields of a benchmark's own that a prediction carries along, where its records have them."""


DOCUMENT, ROTATION = "_document", "_rotation"
"""Fields that settings give their records: the document that a question is about, and how its choices are turned.

Named so that they are no record's own.
"""


def question_id(dataset: str, question: str, answers: list[str]) -> str:
    """A name for a question that is the same at every length: 12 hex digits over data set, question and answers.

    LV-Eval gives its questions no names. Two rows of one file that ask the same thing share the name.
    """
    text = canonical([dataset, question, answers])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def document_id(context: str) -> str:
    """A name for a context: 12 hex digits. Questions about one document share it."""
    return hashlib.sha256(context.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@dataclass(frozen=True)
class Record:
    """One question with its context, as a benchmark's own file gives it, named and checked.

    `fields` holds the benchmark's fields (input, context, answers, length, all_classes, language, answer_keywords,
    confusing_facts ...), which prompts may name. `evidence` and `confusing` are spans of the context, known where
    the record's builder knew them and empty otherwise.
    """

    id: str
    question_id: str
    fields: dict[str, Any]
    evidence: tuple[Span, ...] = ()
    confusing: tuple[Span, ...] = ()

    def to_row(self) -> dict[str, Any]:
        """The row of a records file."""
        return {
            "id": self.id,
            "question_id": self.question_id,
            **self.fields,
            "evidence": [list(span) for span in self.evidence],
            "confusing": [list(span) for span in self.confusing],
        }

    @classmethod
    def from_row(cls, row: dict[str, Any], where: str) -> Record:
        """Read a row of a records file; `where` names the file for the error. Raises UserError."""
        fields = dict(row)
        try:
            return cls(
                id=str(fields.pop("id")),
                question_id=str(fields.pop("question_id")),
                evidence=tuple((int(a), int(b)) for a, b in fields.pop("evidence", [])),
                confusing=tuple((int(a), int(b)) for a, b in fields.pop("confusing", [])),
                fields=fields,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where}: not a record written by longflow ({error!r}); prepare it again") from error


def read_records(path: str | Path, limit: int | None = None) -> Iterator[Record]:
    """Yield the records of a file, the first `limit` of them if a limit is given. Raises UserError."""
    for index, row in enumerate(read_jsonl(path)):
        if limit is not None and index >= limit:
            return
        yield Record.from_row(row, f"{path}, record {index + 1}")


@dataclass(frozen=True)
class Prediction:
    """One answer of a model, with what was asked and what was sent.

    The first six columns are the reference's (LV-Eval prediction.py), in its order. Token counts are those of the
    model's tokenizer: `prompt_tokens` before truncation and `sent_tokens` of the whole text sent, chat wrapper
    included; both are None for an engine that does not tokenise. `kept_head` and `kept_tail` are the characters of
    the rendered prompt that truncation kept at its start and end (None: it was not truncated), `context_start`
    where in that prompt the context begins, so that spans of the context can be placed. A record that failed has an
    empty `pred` and a reason in `error`.
    """

    pred: str
    record: Record
    prompt_tokens: int | None = None
    sent_tokens: int | None = None
    answer_tokens: int | None = None
    kept_head: int | None = None
    kept_tail: int | None = None
    context_start: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_row(self) -> dict[str, Any]:
        """The row of a predictions file."""
        fields = self.record.fields
        # A question with choices has one answer, its letter, and no input.
        answers = fields["answers"] if "answers" in fields else [fields["answer"]]
        return {
            "pred": self.pred,
            "answers": answers,
            "gold_ans": fields.get("answer_keywords"),
            "input": fields["input"] if "input" in fields else fields["question"],
            "all_classes": fields.get("all_classes"),
            "length": fields.get("length"),
            **{name: fields[name] for name in KEPT_FIELDS if name in fields},
            "id": self.record.id,
            "question_id": self.record.question_id,
            "document": fields.get(DOCUMENT),
            **({"rotation": fields[ROTATION]} if ROTATION in fields else {}),
            "prompt_tokens": self.prompt_tokens,
            "sent_tokens": self.sent_tokens,
            "answer_tokens": self.answer_tokens,
            "kept_head": self.kept_head,
            "kept_tail": self.kept_tail,
            "context_start": self.context_start,
            "evidence": [list(span) for span in self.record.evidence],
            "confusing": [list(span) for span in self.record.confusing],
            "confusing_facts": fields.get("confusing_facts"),
            "finish_reason": self.finish_reason,
            "error": self.error,
            **self.extra,
        }
