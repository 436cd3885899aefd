"""Dense retrieval: embeddings of questions and chunks by a model run here or by a server.

A model is run with plain transformers. What a sentence-transformers folder says about itself is followed: pooling,
normalisation, the longest input. A model that says nothing, such as facebook/mcontriever, is pooled by the mean over
its tokens, at most 512 of them, which is what LongBench's reference does (THUDM/LongBench at 2e00731f,
LongBench/retrieval/contriever). The reference computes in float16; here it is float32.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from longflow.engines.tokenizers import one_line
from longflow.errors import UserError
from longflow.jsonio import read_json
from longflow.retrieval.options import RagOptions

Matrix = npt.NDArray[np.float32]

LONGEST_INPUT = 512
"""Tokens of a text that a model without a word of its own about it gets to see."""
BATCH = 32
"""Texts embedded at a time."""
RETRIES = 6
"""Tries after the first that the client makes of what is transient."""


class Encoder(Protocol):
    """What gives embeddings."""

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Embeddings of texts, one a row. Raises UserError."""
        ...

    def __hash__(self) -> int: ...


def similarities(query: str, chunks: Sequence[str], options: RagOptions) -> list[float]:
    """Similarity of each chunk to the question. Raises UserError naming the model and what is wrong."""
    assert options.model is not None
    if options.base_url is None:
        encoder: Encoder = _local(os.path.expanduser(options.model), "cuda" if options.gpu else "cpu")
    else:
        encoder = _server(options.model, options.base_url, options.api_key_env)
    question = _prepared(query, options.query_prefix, options)
    texts = [_prepared(chunk.strip(), options.chunk_prefix, options) for chunk in chunks]
    vectors = np.concatenate([encoder.encode([question]), _embedded(encoder, tuple(texts))]).astype(np.float64)
    if options.similarity == "cosine":
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return [float(value) for value in vectors[1:] @ vectors[0]]


@functools.lru_cache(maxsize=1)
def _embedded(encoder: Encoder, texts: tuple[str, ...]) -> Matrix:
    """The embeddings of the last document are kept: several questions on it often follow one another."""
    return encoder.encode(texts)


def _prepared(text: str, prefix: str, options: RagOptions) -> str:
    return prefix + (text.lower() if options.lowercase else text)


class LocalEncoder:
    """A model run here, in float32.

    Args:
        name: a folder or a hub id.
        device: cpu or cuda.

    Raises UserError if it cannot be loaded, or says that it needs what is not supported.
    """

    def __init__(self, name: str, device: str) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer

        self._folder = Path(name) if Path(name).is_dir() else None
        self._name = name
        self.pooling, self.normalize = self._modules()
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(name)
            self._model = AutoModel.from_pretrained(name, dtype=torch.float32).to(device).eval()
        except Exception as error:
            raise UserError(f"embedding model {name}: cannot be loaded ({one_line(error)})") from error
        own = self._file("sentence_bert_config.json") or {}
        longest = own.get("max_seq_length") or LONGEST_INPUT
        self.longest_input = int(min(longest, self._tokenizer.model_max_length))
        self._lowercase = bool(own.get("do_lower_case"))
        self._device = device

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Embeddings of texts, one a row; of a text that is too long only the beginning counts."""
        import torch

        # Neighbours of like length need little padding.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        rows: dict[int, Matrix] = {}
        for first in range(0, len(order), BATCH):
            batch = order[first : first + BATCH]
            encoded = self._tokenizer(
                [texts[index].lower() if self._lowercase else texts[index] for index in batch],
                padding=True,
                truncation=True,
                max_length=self.longest_input,
                return_tensors="pt",
            ).to(self._device)
            with torch.inference_mode():
                states = self._model(**encoded).last_hidden_state
                if self.pooling == "cls":
                    pooled = states[:, 0]
                else:
                    mask = encoded["attention_mask"].unsqueeze(-1)
                    pooled = (states * mask).sum(dim=1) / mask.sum(dim=1)
                if self.normalize:
                    pooled = torch.nn.functional.normalize(pooled, dim=1)
            rows.update(zip(batch, pooled.cpu().numpy(), strict=True))
        return np.stack([rows[index] for index in range(len(texts))])

    def _modules(self) -> tuple[str, bool]:
        """Pooling (mean or cls) and whether embeddings are normalised, as modules.json of the model says."""
        pooling, normalize = "mean", False
        for module in self._file("modules.json") or []:
            kind = str(module["type"]).rsplit(".", 1)[-1]
            if kind == "Pooling":
                pooling = self._pooling(f"{module['path']}/config.json")
            elif kind == "Normalize":
                normalize = True
            elif kind != "Transformer":
                raise UserError(
                    f"embedding model {self._name}: its module {kind} is not supported; Transformer, Pooling (mean or "
                    "cls) and Normalize are. A server that runs it can be used with base_url"
                )
        return pooling, normalize

    def _pooling(self, file: str) -> str:
        said = self._file(file) or {}
        chosen = {key.removeprefix("pooling_mode_") for key in said if key.startswith("pooling_mode_") and said[key]}
        if isinstance(said.get("pooling_mode"), str):
            chosen.add(said["pooling_mode"])
        names = {"mean_tokens": "mean", "mean": "mean", "cls_token": "cls", "cls": "cls"}
        pooling = {names.get(each) for each in chosen}
        if len(pooling) != 1 or None in pooling:
            raise UserError(
                f"embedding model {self._name}: its pooling ({', '.join(sorted(chosen)) or 'not given'}) is not "
                "supported; mean and cls are. A server that runs it can be used with base_url"
            )
        return str(pooling.pop())

    def _file(self, name: str) -> Any:
        """A JSON file of the model, or None if it has none of that name. Raises UserError if it cannot be fetched."""
        if self._folder is not None:
            path = self._folder / name
            return read_json(path) if path.is_file() else None
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError

        cached = try_to_load_from_cache(self._name, name)
        if cached is not None and not isinstance(cached, str):
            return None  # the hub has said before that there is none
        try:
            return read_json(cached or hf_hub_download(self._name, name))
        except RemoteEntryNotFoundError:
            return None
        except LocalEntryNotFoundError as error:
            # Going on without it could mean another pooling than with it.
            raise UserError(
                f"embedding model {self._name}: {name} is not among what was downloaded and there is no network; "
                "download the model whole, or name a folder"
            ) from error
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"embedding model {self._name}: {name} cannot be fetched ({one_line(error)})") from error


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

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Embeddings of texts, one a row. An empty text, which servers refuse, is sent as a space."""
        rows: list[list[float]] = []
        for first in range(0, len(texts), BATCH):
            rows += self._ask([text or " " for text in texts[first : first + BATCH]])
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
