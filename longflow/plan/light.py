"""A tokenizer for estimates: the tokens of the model's own, without the seconds that transformers takes to import."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from longflow.engines.tokenizers import CHAT_DATE
from longflow.errors import UserError


class LightTokenizer:
    """A folder's tokenizer.json, read by the tokenizers library alone, with the folder's chat template."""

    def __init__(self, inner: Any, settings: dict[str, Any], template: str | None, date: str) -> None:
        self._inner = inner
        self._settings = settings
        self._template = template
        self._date = datetime.date.fromisoformat(date)

    @classmethod
    def load(cls, folder: str | None, date: str = CHAT_DATE) -> LightTokenizer | None:
        """The tokenizer of a folder, or None where it is not of this kind."""
        if folder is None or not (Path(folder) / "tokenizer.json").is_file():
            return None
        try:
            from tokenizers import Tokenizer

            inner: Any = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
            path = Path(folder) / "tokenizer_config.json"
            settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            template = settings.get("chat_template")
            path = Path(folder) / "chat_template.jinja"
            if path.is_file():
                template = path.read_text(encoding="utf-8")
        except Exception:  # the library raises bare Exceptions; the estimate then goes without
            return None
        return cls(inner, settings, template if isinstance(template, str) else None, date)

    def encode(self, text: str, special_tokens: bool) -> list[int]:
        """Token ids of a text, with the tokenizer's own special tokens or without."""
        return list(self._inner.encode(text, add_special_tokens=special_tokens).ids)

    def decode(self, ids: list[int]) -> str:
        """Text of token ids, special tokens skipped."""
        return str(self._inner.decode(ids))

    def chat(self, prompt: str, options: dict[str, Any]) -> str:
        """The prompt as one user message in the chat template. Raises UserError where it cannot be rendered here."""
        if self._template is None:
            raise UserError("no chat template")
        from jinja2 import Environment

        def refuse(message: str) -> None:
            raise UserError(message)

        names = {name: _token(self._settings.get(name)) for name in ("bos_token", "eos_token", "pad_token")}
        try:
            environment = Environment(
                trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False
            )
            environment.globals |= {"raise_exception": refuse, "strftime_now": self._date.strftime}
            return environment.from_string(self._template).render(
                messages=[{"role": "user", "content": prompt}],
                add_generation_prompt=True,
                **{"date_string": self._date.strftime("%d %b %Y"), **names, **options},
            )
        except Exception as error:  # a template is anybody's program
            raise UserError(f"chat template: {error}") from error


def _token(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, dict) else str(value or "")
