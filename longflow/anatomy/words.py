"""Which words of a text say what it is about, in English and in Chinese.

Words are those of the metrics (`longflow.metrics.text`): normalised, Chinese ones cut by jieba. Stop words are the
metrics' and those of words.yaml.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from longflow.metrics.text import normalize_en, normalize_zh, stop_words, tokens_en, tokens_zh

WORDS_FILE = Path(__file__).with_name("words.yaml")

_POSSESSIVE = re.compile(r"['’]s\b")
_EDGE = " \t\r\n.,;:!?\"'()[]*，。；：！？“”‘’（）、"


@functools.cache
def empty_words(language: str) -> frozenset[str]:
    """The words that say nothing about what a text is about: the metrics' stop words and those of words.yaml."""
    lists: dict[str, Any] = yaml.safe_load(WORDS_FILE.read_text(encoding="utf-8"))
    return stop_words(kind(language)) | frozenset(lists[kind(language)])


def kind(language: str) -> str:
    """The language whose words are counted: `zh`, or `en` for everything else (code too)."""
    return "zh" if language == "zh" else "en"


def tokens(text: str, language: str) -> list[str]:
    """The normalised words of a text, in their order."""
    return tokens_zh(text) if kind(language) == "zh" else tokens_en(_POSSESSIVE.sub("", text))


def content(text: str, language: str) -> list[str]:
    """The words of a text that say what it is about, each once, in their order.

    Without stop words and question words; in Chinese also without words of one character unless they are digits, for
    those are as good as never a name.
    """
    empty = empty_words(language)
    found = dict.fromkeys(token for token in tokens(text, language) if token not in empty)
    return [token for token in found if token.isascii() or len(token) > 1]


def strip(text: str) -> str:
    """A text without spaces, brackets, quotation marks and punctuation at its ends."""
    return text.strip(_EDGE)


def holds(text: str, phrase: str, language: str) -> bool:
    """Whether a text has a phrase as it stands, but for case, punctuation, articles and spaces."""
    if kind(language) == "zh":
        wanted = normalize_zh(phrase)
        return bool(wanted) and wanted in normalize_zh(text)
    wanted = normalize_en(_spaced(phrase))
    return bool(wanted) and f" {wanted} " in f" {normalize_en(_spaced(text))} "


def _spaced(text: str) -> str:
    """A text with spaces for Chinese punctuation, which the English normaliser leaves standing (48V。)."""
    return text.translate(_FULL_WIDTH)


_FULL_WIDTH = dict.fromkeys(map(ord, "。，；：！？、（）“”"), " ")

_SENTENCE_END = re.compile(r"(?P<last>[^\W_]+)[.!?][\"'”’)\]]*(?=\s|$)|[。！？；\n]")
_ABBREVIATIONS = frozenset(("mr", "mrs", "ms", "dr", "st", "vs", "jr", "sr", "prof", "gen", "col", "no"))


def sentence_ends(text: str) -> Iterator[int]:
    """Where the sentences and lines of a text end; initials and common abbreviations end none."""
    for end in _SENTENCE_END.finditer(text):
        last = end["last"]
        if last is None or last.isdigit() or (len(last) > 1 and last.lower() not in _ABBREVIATIONS):
            yield end.end()


def strings(value: Any) -> list[str]:
    """The texts in a value that is a text, a list of them, or an object with texts in it; blank ones left out."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, dict):
        return [text for part in value.values() for text in strings(part)]
    if isinstance(value, Sequence):
        return [text for part in value for text in strings(part)]
    return []


def listed(words: Iterable[str], most: int = 6) -> str:
    """Words for a reason that a person reads."""
    found = list(words)
    return ", ".join(found[:most]) + (" …" if len(found) > most else "")
