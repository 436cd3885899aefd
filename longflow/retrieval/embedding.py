"""Dense retrieval: embeddings of questions and chunks by a model run here or by a server.

A model is run by sentence-transformers, which follows what the model says of itself: its modules, its longest input,
its prompts. A model that says nothing, such as facebook/mcontriever, is pooled by the mean over its tokens, at most 512
of them, which is what LongBench's reference does (THUDM/LongBench at 2e00731f, LongBench/retrieval/contriever). The
reference computes in float16; here it is float32.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from longflow.engines.tokenizers import one_line
from longflow.errors import UserError
from longflow.retrieval.options import RagOptions

Matrix = npt.NDArray[np.float32]
Role = Literal["query", "document"]

LONGEST_INPUT = 512
"""Tokens of a text that a model gets to see which is no sentence-transformers model."""
BATCH = 32
"""Texts embedded at a time."""
RETRIES = 6
"""Tries after the first that the client makes of what is transient."""


class Encoder(Protocol):
    """What gives embeddings."""

    def encode(self, texts: Sequence[str], role: Role, prefix: str | None) -> Matrix:
        """Embeddings of texts, one a row, of questions or of chunks.

        `prefix` stands before each text; None is the model's own for the role, if it has one. Raises UserError.
        """
        ...

    def __hash__(self) -> int: ...


def similarities(query: str, chunks: Sequence[str], options: RagOptions) -> list[float]:
    """Similarity of each chunk to the question. Raises UserError naming the model and what is wrong."""
    assert options.model is not None
    if options.base_url is None:
        device = "cuda" if options.gpu else "cpu"
        name = os.path.expanduser(options.model)
        encoder: Encoder = _local(name, options.revision, device, options.trust_remote_code)
    else:
        encoder = _server(options.model, options.base_url, options.api_key_env)
    texts = [chunk.strip() for chunk in chunks]
    if options.lowercase:
        query, texts = query.lower(), [text.lower() for text in texts]
    question = encoder.encode([query], "query", options.query_prefix)
    vectors = np.concatenate([question, _embedded(encoder, tuple(texts), options.chunk_prefix)]).astype(np.float64)
    if options.similarity == "cosine":
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return [float(value) for value in vectors[1:] @ vectors[0]]


@functools.lru_cache(maxsize=1)
def _embedded(encoder: Encoder, texts: tuple[str, ...], prefix: str | None) -> Matrix:
    """The embeddings of the last document are kept: several questions on it often follow one another."""
    return encoder.encode(texts, "document", prefix)


class LocalEncoder:
    """A model run here by sentence-transformers, in float32.

    Args:
        name: a folder or a hub id.
        revision: of the hub's repository; None is its main branch.
        device: cpu or cuda.
        trust_remote_code: whether code that comes with the model may run.

    Raises UserError if it cannot be loaded.
    """

    def __init__(self, name: str, revision: str | None, device: str, trust_remote_code: bool) -> None:
        commit, says_how = _found(name, revision)
        import sentence_transformers
        import torch
        from transformers.utils import logging as transformers_logging

        bars: Any = transformers_logging
        bars.disable_progress_bar()  # logs are made of lines
        library: Any = sentence_transformers
        self._name = name
        try:
            self._model = library.SentenceTransformer(
                name,
                revision=commit,
                device=device,
                trust_remote_code=trust_remote_code,
                model_kwargs={"dtype": torch.float32},
            )
        except Exception as error:
            raise UserError(f"embedding model {name}: cannot be loaded ({one_line(error)})") from error
        if not says_how:
            self._model.max_seq_length = min(self._model.max_seq_length or LONGEST_INPUT, LONGEST_INPUT)

    def encode(self, texts: Sequence[str], role: Role, prefix: str | None) -> Matrix:
        """Embeddings of texts, one a row; of a text that is too long only the beginning counts."""
        encode = self._model.encode_query if role == "query" else self._model.encode_document
        try:
            found = encode(list(texts), prompt=prefix, batch_size=BATCH, show_progress_bar=False)
        except Exception as error:
            raise UserError(f"embedding model {self._name}: {one_line(error)}") from error
        return np.asarray(found, dtype=np.float32)


def _found(name: str, revision: str | None) -> tuple[str | None, bool]:
    """The commit of a hub model (None for a folder), and whether the model is one of sentence-transformers.

    Without a network the library takes a modules.json that was never downloaded for one that does not exist, and would
    pool by the mean; so this is asked of the hub before. Raises UserError where it cannot be known, and for what is
    neither a folder nor a hub id.
    """
    if Path(name).is_dir():
        return None, (Path(name) / "modules.json").is_file()
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise UserError(f"embedding model {name}: no such folder, and it is not a hub id (org/name) either")
    from huggingface_hub import hf_hub_download, resolve_revision, try_to_load_from_cache
    from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError, RevisionResolutionError

    try:
        commit: str = resolve_revision(name, revision=revision or "main").resolved
        cached = try_to_load_from_cache(name, "modules.json", revision=commit)
        if cached is None:
            cached = hf_hub_download(name, "modules.json", revision=commit)
    except RemoteEntryNotFoundError:
        cached = None
    except (LocalEntryNotFoundError, RevisionResolutionError) as error:
        raise UserError(
            f"embedding model {name}: it was not downloaded, or not whole, and there is no network; download it, or "
            "name a folder"
        ) from error
    except Exception as error:
        raise UserError(f"embedding model {name}: cannot be fetched ({one_line(error)})") from error
    return commit, isinstance(cached, str)  # another object says that the hub was asked before and has none


class ServerEncoder:
    """Embeddings by an OpenAI-compatible server, through the openai client, which retries what is transient."""

    def __init__(self, model: str, base_url: str, api_key_env: str) -> None:
        import openai

        from longflow.engines.openai import _is_here

        self._key = os.environ.get(api_key_env) or "none"  # one's own server asks for none; the client wants some
        # A proxy that the environment names is right for the world and wrong for a server on this machine.
        http_client = openai.DefaultHttpxClient(trust_env=False) if _is_here(base_url) else None
        self._model, self._url = model, base_url
        self._client = openai.OpenAI(
            api_key=self._key, base_url=base_url, max_retries=RETRIES, timeout=120, http_client=http_client
        )

    def encode(self, texts: Sequence[str], role: Role, prefix: str | None) -> Matrix:
        """Embeddings of texts, one a row. An empty text, which servers refuse, is sent as a space."""
        rows: list[list[float]] = []
        for first in range(0, len(texts), BATCH):
            rows += self._ask([f"{prefix or ''}{text}" or " " for text in texts[first : first + BATCH]])
        return np.array(rows, dtype=np.float32)

    def _ask(self, texts: list[str]) -> list[list[float]]:
        try:
            answer = self._client.embeddings.create(model=self._model, input=texts, encoding_format="float")
            found = [each.embedding for each in sorted(answer.data, key=lambda each: each.index)]
        except Exception as error:
            words = one_line(error)
            words = words.replace(self._key, "***") if self._key != "none" else words
            raise UserError(f"embedding model {self._model} at {self._url}: {words}") from error
        if len(found) != len(texts) or len({len(row) for row in found}) != 1:
            raise UserError(
                f"embedding model {self._model} at {self._url}: {len(texts)} vectors of one length were expected, "
                f"{len(found)} came"
            )
        return found


# A model is loaded once per process, however many records it is asked about.
_local = functools.lru_cache(maxsize=1)(LocalEncoder)
_server = functools.lru_cache(maxsize=1)(ServerEncoder)
