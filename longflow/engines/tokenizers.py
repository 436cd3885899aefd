"""Tokenizers as prompts need them: text to ids, ids to text, and the model's own chat template.

Importing transformers' AutoTokenizer imports torch where it is installed (about 4 s, against 1.5 s without), so
neither is imported before a tokenizer is loaded.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import Any
from unittest import mock

from longflow.engines import Tokenizer
from longflow.errors import UserError

CHAT_DATE = "2024-07-26"
"""The day that chat templates are told it is, unless the model's entry names another."""

CHATGLM3_TOKENS = ("[gMASK]", "sop", "<|user|>", "<|assistant|>")
"""What ChatGLM3 begins a text, a user's turn and its own turn with."""

TIKTOKEN = "tiktoken:"
"""Prefix of a tokenizer that is one of tiktoken's: followed by the name of a model or of an encoding."""


def one_line(error: BaseException) -> str:
    """Class and message of an exception on one line, long messages cut after 300 characters."""
    text = " ".join(str(error).split())
    if len(text) > 300:
        text = text[:297] + "..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def load_tokenizer(name: str, chat_date: str = CHAT_DATE) -> Tokenizer:
    """The tokenizer that `name` stands for: `tiktoken:NAME`, a folder, or a hub id.

    Raises UserError if there is none of that name or it cannot be fetched.
    """
    if name.startswith(TIKTOKEN):
        return TiktokenTokenizer.load(name.removeprefix(TIKTOKEN))
    return HuggingFaceTokenizer.load(name, chat_date=chat_date)


class HuggingFaceTokenizer:
    """A tokenizer of the transformers library.

    `inner` is the library's object. Its chat template sees the date that was given, never today's.
    """

    def __init__(self, inner: Any, name: str, chat_date: str = CHAT_DATE) -> None:
        self.inner = inner
        self._name = name
        try:
            self._date = datetime.date.fromisoformat(chat_date)
        except ValueError as error:
            raise UserError(f"chat_date {chat_date!r}: a date like {CHAT_DATE} was expected") from error

    @classmethod
    def load(
        cls,
        path: str,
        *,
        revision: str | None = None,
        trust_remote_code: bool = False,
        local_files_only: bool = False,
        chat_date: str = CHAT_DATE,
    ) -> HuggingFaceTokenizer:
        """Load from a folder or a hub id. Raises UserError naming it and the reason."""
        from transformers import AutoTokenizer

        try:
            inner = AutoTokenizer.from_pretrained(
                path,
                revision=revision or "main",
                trust_remote_code=trust_remote_code,
                local_files_only=local_files_only,
            )
        except Exception as error:
            raise UserError(f"tokenizer {path}: cannot be loaded ({one_line(error)})") from error
        return cls(inner, path, chat_date)

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        """Token ids of a text, with the tokenizer's own special tokens (BOS) or without."""
        # verbose=False: texts longer than the window are the rule here, and a warning about each would be noise.
        encoded = self.inner(text, add_special_tokens=special_tokens, return_attention_mask=False, verbose=False)
        return list(encoded["input_ids"])

    def decode(self, ids: list[int]) -> str:
        """Text of token ids, special tokens skipped, spaces cleaned up only if the tokenizer's own default says so."""
        return str(self.inner.decode(ids, skip_special_tokens=True))

    def chat(self, prompt: str, options: dict[str, Any]) -> str:
        """The prompt as one user message in the tokenizer's chat template, up to where the answer begins.

        `options` are the template's own variables (such as enable_thinking). `date_string` is preset to the pinned
        date in the form of the Llama 3 templates ("26 Jul 2024"), and `strftime_now` speaks of that date too.

        Raises UserError if there is no template or the template refuses the message.
        """
        if not self.inner.chat_template:
            raise UserError(
                f"tokenizer {self._name} has no chat template; choose chat: none, chat: reference:NAME or a text with "
                "{prompt}"
            )
        import jinja2

        variables = {"date_string": self._date.strftime("%d %b %Y"), **options}
        message = [{"role": "user", "content": prompt}]
        try:
            with _pinned_clock(self._date):
                text = self.inner.apply_chat_template(message, tokenize=False, add_generation_prompt=True, **variables)
        except jinja2.TemplateError as error:
            raise UserError(f"chat template of tokenizer {self._name}: {one_line(error)}") from error
        return str(text)

    def chatglm3(self, prompt: str) -> list[int]:
        """The prompt as one user turn of ChatGLM3, as token ids, up to where the answer begins.

        This is what the tokenizer's own `build_chat_input` gives, which LongBench's pred.py (THUDM/LongBench at
        2e00731f) sends as it is. That method came as code with the model, which recent versions of transformers often
        cannot run. A tokenizer that has the tokens and not the method is used to the same end: [gMASK], sop,
        <|user|>, the ids of a line end, the ids of the prompt, <|assistant|>, the two texts tokenised apart, without
        special tokens, and a text such as <|user|> within the prompt left a text.

        Raises UserError where the tokenizer has neither, or its own method fails.
        """
        build = getattr(self.inner, "build_chat_input", None)
        if build is not None:
            try:
                ids = build(prompt)["input_ids"]
            except Exception as error:
                raise UserError(
                    f"tokenizer {self._name}: its build_chat_input cannot be run ({one_line(error)}); a converted "
                    "tokenizer without that method can be named under tokenizer:"
                ) from error
            return [int(token) for token in (ids[0] if _is_batch(ids) else ids)]
        vocabulary = self.inner.get_vocab()
        missing = [token for token in CHATGLM3_TOKENS if token not in vocabulary]
        if missing:
            raise UserError(
                f"tokenizer {self._name}: it has no build_chat_input and no token {missing[0]}, so it is not ChatGLM3's"
            )
        mask, sop, user, assistant = (int(vocabulary[token]) for token in CHATGLM3_TOKENS)
        return [mask, sop, user, *self._plain("\n"), *self._plain(prompt), assistant]

    def _plain(self, text: str) -> list[int]:
        """Token ids of a text in which nothing is a special token."""
        encoded = self.inner(text, add_special_tokens=False, split_special_tokens=True, verbose=False)
        return list(encoded["input_ids"])


def _is_batch(ids: Any) -> bool:
    """Whether token ids are those of a list of texts (a list, an array or a tensor of them)."""
    return hasattr(ids[0], "__len__") and getattr(ids[0], "ndim", 1) > 0


@contextlib.contextmanager
def _pinned_clock(day: datetime.date) -> Iterator[None]:
    """Make the chat templates' `strftime_now` tell the given day.

    transformers offers no switch for it: the function is built in where templates are compiled, reads
    `datetime.now()`, and callables passed as template variables are replaced by placeholders. So the class it reads
    the clock from is exchanged while a template is rendered.
    """
    from transformers.utils import chat_template_utils

    class PinnedClock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> PinnedClock:
            return cls(day.year, day.month, day.day, tzinfo=tz)

    with mock.patch.object(chat_template_utils, "datetime", PinnedClock):
        yield


class TiktokenTokenizer:
    """An encoding of the tiktoken library, for counting and cutting the prompts of hosted models."""

    def __init__(self, encoding: Any) -> None:
        self._encoding = encoding

    @classmethod
    def load(cls, name: str) -> TiktokenTokenizer:
        """Load by the name of a model (gpt-4o) or of an encoding (o200k_base). Raises UserError."""
        try:
            import tiktoken
        except ImportError as error:
            raise UserError(f"tokenizer {TIKTOKEN}{name}: the package tiktoken is not installed") from error
        try:
            known = name in tiktoken.list_encoding_names()
            return cls(tiktoken.get_encoding(name) if known else tiktoken.encoding_for_model(name))
        except KeyError as error:
            raise UserError(
                f"tokenizer {TIKTOKEN}{name}: tiktoken knows no model or encoding of that name; encodings: "
                f"{', '.join(tiktoken.list_encoding_names())}"
            ) from error
        except Exception as error:
            raise UserError(
                f"tokenizer {TIKTOKEN}{name}: its vocabulary cannot be fetched ({one_line(error)}); without network, "
                "point TIKTOKEN_CACHE_DIR at a folder that holds it"
            ) from error

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        """Token ids of a text. There are no special tokens to add; text that looks like one is text."""
        return list(self._encoding.encode(text, disallowed_special=()))

    def decode(self, ids: list[int]) -> str:
        """Text of token ids; half a character becomes U+FFFD, as in LV-Eval's prediction_gpt.py."""
        return str(self._encoding.decode(ids))

    def chat(self, prompt: str, options: dict[str, Any]) -> str:
        """Refused: tiktoken has no templates."""
        raise UserError("tiktoken has no chat templates: the server wraps the prompt itself")
