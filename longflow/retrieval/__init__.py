"""Retrieval: a context made of those parts of a long one that fit a question best, the setting `kind: rag`.

A context is split into chunks (`chunks.py`), the chunks are ranked by the question (`ranking.py`), and the best of
them, joined, are the new context. Defaults are those of the references: LongBench/retrieval/ for LongBench, and pred.py
with the retrieval that its README points to for LongBench v2 (THUDM/LongBench at
2e00731f8d0bff23dc4325161044d0ed8af94c1e).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longflow.errors import UserError
from longflow.records import Record, Span
from longflow.retrieval.chunks import places, split
from longflow.retrieval.options import RagOptions
from longflow.retrieval.ranking import best_first, rank, scores

__all__ = ["RagOptions", "moved_spans", "rank", "retrieve", "scores", "split"]


def retrieve(record_fields: Mapping[str, Any], query: str, options: RagOptions) -> tuple[str, list[dict[str, Any]]]:
    """The new context of a record, and the chunks that it is made of, in the order in which they stand in it.

    Args:
        record_fields: the record's fields, of which `context` is read.
        query: what is looked for: the record's question.
        options: how to split, rank and join.

    Returns:
        The context, and for each of its at most `top_n` chunks a dictionary: `index` among all chunks in the order of
        the document, `score`, `content`, `start` and `end` in the old context (None where a tokenizer does not give
        its text back), and `at`, where it begins in the new one; all in characters. An empty context stays empty.

    Raises:
        UserError: there is no context, or a model, tokenizer or server cannot be used.
    """
    context = record_fields.get("context")
    if not isinstance(context, str):
        raise UserError(f"a record to retrieve from needs a text in 'context', found {type(context).__name__}")
    chunks = split(context, options)
    values = scores(query, [chunk.content for chunk in chunks], options)
    best = best_first(values)[: options.top_n]
    numbered = options.form == "numbered"
    separator = "\n\n" if numbered else options.separator
    text = ""
    used: list[dict[str, Any]] = []
    for number, index in enumerate(sorted(best) if options.document_order else best, 1):
        chunk = chunks[index]
        text += (separator if number > 1 else "") + (f"Retrieved chunk {number}: " if numbered else "")
        used.append(
            {
                "index": index,
                "score": values[index],
                "content": chunk.content,
                "start": chunk.start,
                "end": chunk.end,
                "at": len(text),
            }
        )
        text += chunk.content
    if numbered and used:
        # The reference strips a context that it fills in. It begins with words, so only the last chunk can change.
        text, last = text.rstrip(), used[-1]
        last["content"] = last["content"].rstrip()
        if last["start"] is not None:
            last["end"] = last["start"] + len(context[last["start"] : last["end"]].rstrip())
    return text, used


def moved_spans(record: Record, chunks_used: Sequence[Mapping[str, Any]]) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Where a record's evidence and confusing facts stand in its new context.

    Args:
        record: the record as it was, with its old context.
        chunks_used: the chunks that `retrieve` gave for it.

    Returns:
        The spans of the evidence and of the confusing facts in the new context, in the record's order. A span is kept
        if one chunk holds it whole; one that lies in no chunk used, or was cut in two, is left out.
    """
    context = str(record.fields["context"])
    return _moved(record.evidence, context, chunks_used), _moved(record.confusing, context, chunks_used)


def _moved(spans: Sequence[Span], context: str, chunks_used: Sequence[Mapping[str, Any]]) -> tuple[Span, ...]:
    moved = []
    for first, last in spans:
        for chunk in chunks_used:
            start, end = chunk["start"], chunk["end"]
            if start is not None and start <= first < last <= end:
                where = places(chunk["content"], context[start:end])
                moved.append((chunk["at"] + where[first - start], chunk["at"] + where[last - 1 - start] + 1))
                break
    return tuple(moved)
