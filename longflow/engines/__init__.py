"""Engines: what turns prompts into completions. One interface, whatever runs behind it.

An engine reads no records and writes no files. It is built from a model's configuration, hands out the model's
tokenizer without loading the model, and yields completions as they finish, in any order.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from longflow.errors import UserError

Prompt = str | list[dict[str, str]] | list[int]
"""What is sent: a text, the messages of a chat for a server that wraps them itself, or token ids as they are."""


@dataclass(frozen=True)
class Generation:
    """How an answer is generated. `temperature` 0 is greedy; `seed` matters only above it.

    `min_new_tokens` are generated before the answer may end. With `stop_newline` a line end is one more end of it, as
    LongBench has it for samsum.
    """

    max_new_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    min_new_tokens: int = 0
    stop_newline: bool = False

    def to_spec(self) -> dict[str, Any]:
        """What of it stands in a specification and in a journal key; greedy runs leave out what has no effect."""
        greedy: dict[str, Any] = {"max_new_tokens": self.max_new_tokens, "temperature": 0}
        if self.min_new_tokens:
            greedy["min_new_tokens"] = self.min_new_tokens
        if self.stop_newline:
            greedy["stop_newline"] = True
        sampled = {"temperature": self.temperature, "top_p": self.top_p, "seed": self.seed}
        return greedy if self.temperature == 0 else {**greedy, **sampled}


@dataclass(frozen=True)
class Request:
    """One prompt for the model. `special_tokens` tells whether the tokenizer adds its own (BOS) to a text."""

    key: str
    prompt: Prompt
    special_tokens: bool
    generation: Generation
    name: str
    """The record's id, for messages about this request."""


@dataclass(frozen=True)
class Completion:
    """The answer to the request of the same key.

    `text` is the decoded answer without special tokens. `finish_reason` is "stop" or "length"; a request that could
    not be answered has "error" with one line of reason in `error` and an empty text. `cached_tokens` are those of the
    prompt that a server had in its cache; `note` is a line on how the answer was made, where that was out of the way.
    """

    key: str
    text: str
    finish_reason: str
    prompt_tokens: int | None = None
    answer_tokens: int | None = None
    seconds: float | None = None
    error: str | None = None
    cached_tokens: int | None = None
    note: str | None = None


class Tokenizer(Protocol):
    """The part of a tokenizer that prompts need."""

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        """Token ids of a text, with the tokenizer's own special tokens (BOS) or without."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Text of token ids, special tokens skipped."""
        ...

    def chat(self, prompt: str, options: dict[str, Any]) -> str:
        """The prompt as one user message in the tokenizer's own chat template, ready to be continued.

        Raises UserError where the tokenizer has no template.
        """
        ...


@runtime_checkable
class Engine(Protocol):
    """What a model's entry `engine:` stands for.

    A user's own engine is a class of this shape, named `module:Class`. It is called with the model's entry as a
    dictionary (its `options:` and every other key) and the folder or snapshot the model was resolved to, if any.
    """

    def tokenizer(self) -> Tokenizer | None:
        """The model's tokenizer, without loading the model; None if prompts are to be sent as they are."""
        ...

    def generate(self, requests: Iterable[Request]) -> Iterator[Completion]:
        """Answer every request, in any order, loading the model at the first."""
        ...

    def close(self) -> None:
        """Give back what the engine holds."""
        ...


MERGE_TOKENS = 65_536
"""Tokens, prompts and answers, of what is decoded side by side with `decode: merged`, by default."""

MERGED_MOST = 16
"""So many answers at most are decoded side by side."""

ENGINES = {
    "transformers": "longflow.engines.transformers:TransformersEngine",
    "openai": "longflow.engines.openai:OpenAIEngine",
}
"""The engines that come with longflow, by the name a model's entry gives."""


def engine_class(name: str) -> Any:
    """What an engine's name stands for. Raises UserError naming what could not be imported."""
    module, _, attribute = ENGINES.get(name, name).partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # anybody's module may raise anything
        words = " ".join(str(error).split())
        raise UserError(f"engine {name!r} cannot be loaded: {type(error).__name__}: {words}") from error


def load_engine(name: str, entry: dict[str, Any], location: str | None) -> Engine:
    """Build the engine of a model's entry.

    Args:
        name: a key of `ENGINES`, or `module:Class` importable from where the command runs.
        entry: the model's entry, validated, defaults filled in.
        location: the folder that holds the model, or None for engines without one.

    Raises UserError naming what could not be imported or is not an engine.
    """
    factory = engine_class(name)
    try:
        engine = factory(entry, location)
    except (UserError, OSError):
        raise
    except Exception as error:  # anybody's class may raise anything
        raise UserError(f"engine {name!r} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(engine, Engine):
        raise UserError(f"engine {name!r} is not an engine: it needs the methods tokenizer, generate and close")
    return engine
