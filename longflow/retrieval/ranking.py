"""Chunks ranked by a question: BM25 over characters or words, or embeddings."""

from __future__ import annotations

from collections.abc import Sequence

from longflow.retrieval.chunks import words
from longflow.retrieval.options import RagOptions

K1, B, EPSILON = 1.5, 0.75, 0.25
"""rank_bm25's defaults, which the reference uses; written down so that they stay."""


def rank(query: str, chunks: Sequence[str], options: RagOptions) -> list[int]:
    """Indexes of the chunks, the best first. Of two with one score the earlier comes first.

    That rule is ours: the reference reverses an unstable sort, so that its order of equal scores is numpy's choice.
    Raises UserError as `scores`.
    """
    return best_first(scores(query, chunks, options))


def best_first(values: Sequence[float]) -> list[int]:
    """Indexes of scores in descending order, of equal ones the lower index first."""
    return sorted(range(len(values)), key=lambda index: (-values[index], index))


def scores(query: str, chunks: Sequence[str], options: RagOptions) -> list[float]:
    """How well each chunk fits the question; higher is better, and only the order means something.

    Raises UserError if a model cannot be loaded or a server does not answer.
    """
    if not chunks:
        return []
    if options.retriever == "bm25_chars":
        return bm25(list(query), [list(chunk) for chunk in chunks])
    if options.retriever == "bm25_words":
        return bm25(words(query), [words(chunk) for chunk in chunks])
    from longflow.retrieval import embedding

    return embedding.similarities(query, chunks, options)


def bm25(query: Sequence[str], documents: Sequence[Sequence[str]]) -> list[float]:
    """BM25Okapi of rank_bm25 over tokens. Where no document has a token, which it does not survive, all are 0.

    The reference (THUDM/LongBench at 2e00731f, LongBench/retrieval/BM25) hands it strings in place of lists of words,
    so that its tokens are characters, upper and lower case told apart: `bm25_chars`.
    """
    from rank_bm25 import BM25Okapi  # type: ignore[import-untyped]

    if not any(documents):
        return [0.0] * len(documents)
    return [float(value) for value in BM25Okapi(documents, k1=K1, b=B, epsilon=EPSILON).get_scores(query)]
