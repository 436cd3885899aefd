"""How answers become tokens, in English and in Chinese, as LV-Eval and LongBench do it.

Source of the behaviour: metrics.py of infinigence/LVEval at 63e7ae939bd347c76b2cdb1cebfb216faca26897; metrics.py of
THUDM/LongBench at 2e00731f8d0bff23dc4325161044d0ed8af94c1e does the same. Chinese words are those of jieba 0.42.1.
"""

from __future__ import annotations

import functools
import re
import string
import warnings
from pathlib import Path
from typing import Any

import yaml

STOP_WORDS_FILE = Path(__file__).with_name("stopwords.yaml")

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_ASCII_PUNCTUATION = {ord(sign): None for sign in string.punctuation}


@functools.cache
def _word_lists() -> dict[str, Any]:
    lists: dict[str, Any] = yaml.safe_load(STOP_WORDS_FILE.read_text(encoding="utf-8"))
    return lists


@functools.cache
def stop_words(language: str) -> frozenset[str]:
    """The words of `en` or `zh` that LV-Eval does not count as keywords found."""
    return frozenset(_word_lists()[language])


@functools.cache
def _no_chinese_punctuation() -> dict[int, None]:
    return _NO_ASCII_PUNCTUATION | {ord(sign): None for sign in _word_lists()["zh_punctuation"]}


def normalize_en(text: str) -> str:
    """Lower case, without ASCII punctuation, without the articles a, an, the, single spaces between words.

    Punctuation is deleted, not replaced: "re-run" becomes "rerun". Typographic quotation marks stay.
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_ASCII_PUNCTUATION)).split())


def normalize_zh(text: str) -> str:
    """Lower case, without ASCII and Chinese punctuation and without any white space.

    The reference's list of Chinese punctuation lacks 《, 〈, 〉 and ·, so these stay.
    """
    return "".join(text.lower().translate(_no_chinese_punctuation()).split())


def tokens_en(text: str) -> list[str]:
    """The words of a normalised English text."""
    return normalize_en(text).split()


def tokens_zh(text: str) -> list[str]:
    """jieba's words of a Chinese text, each normalised; words of which nothing is left are dropped."""
    return [token for word in segment(text) if (token := normalize_zh(word))]


@functools.cache
def _segmenter() -> Any:
    """A jieba tokenizer of our own, with jieba's own dictionary.

    jieba would keep a copy of its dictionary in the temporary folder under a name that all its versions and all users
    of the machine share, and believe whatever lies there. Reading the dictionary itself is as fast (0.7 s), touches no
    file but jieba's own, and prints nothing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jieba
    tokenizer = jieba.Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer


@functools.lru_cache(maxsize=4096)
def segment(text: str) -> tuple[str, ...]:
    """jieba's words of a text (accurate mode, unknown words by its HMM); together they give the text again."""
    return tuple(_segmenter().cut(text, cut_all=False, HMM=True))
