"""A text cut into chunks: sentences packed as LongBench's reference does, or windows of tokens as LongBench v2's."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass

from longflow.engines import Tokenizer
from longflow.retrieval.options import RagOptions

SEPARATOR = re.compile(r"([。？！；\n.!?;]\s*)")
"""Where sentences end; what separates them is kept, as pieces of their own."""

WORD = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+")
"""A word as the reference counts: a run of letters, digits and underscores, or a single CJK character."""

LOST = "\ufffd"
"""What a part of a character decodes to, where a window ends within one."""


@dataclass(frozen=True)
class Chunk:
    """A chunk and the stretch of the text that it was cut from, in characters; None where that is not known."""

    content: str
    start: int | None
    end: int | None


def words(text: str) -> list[str]:
    """The words of a text, lower-cased, CJK characters (U+4E00 to U+9FA5) one by one.

    Source: THUDM/LongBench at 2e00731f, LongBench/retrieval (splitter); what it splits at is `\\W`.
    """
    return WORD.findall(text.lower())


def split(text: str, options: RagOptions) -> list[Chunk]:
    """The chunks of a text, in its order. Raises UserError if the tokenizer cannot be loaded."""
    if options.splitter == "sentences":
        return sentences(text, options.chunk_size)
    assert options.tokenizer is not None
    return token_windows(text, options.chunk_size, _tokenizer(options.tokenizer))


def sentences(text: str, chunk_size: int) -> list[Chunk]:
    """Sentences packed into chunks of at most `chunk_size` words; a longer sentence stays whole.

    Source: THUDM/LongBench at 2e00731f, LongBench/retrieval (splitter). Kept from it: what ends a sentence is a piece
    by itself, so a chunk may begin with it; and an empty piece, which stands between two neighbouring separators and
    after one that ends the text, adds a space to a chunk that is not empty. So joined chunks are the text with these
    spaces added.
    """
    chunks: list[Chunk] = []
    content, count, start, position = "", 0, 0, 0
    for piece in SEPARATOR.split(text):
        number = len(words(piece))
        if content and count + number <= chunk_size:
            content += piece or " "
            count += number
        else:
            if content:
                chunks.append(Chunk(content, start, position))
            content, count, start = piece, number, position
        position += len(piece)
    if content:
        chunks.append(Chunk(content, start, position))
    return chunks


def token_windows(text: str, size: int, tokenizer: Tokenizer) -> list[Chunk]:
    """Windows of `size` tokens (the last one shorter), without overlap, decoded one by one.

    Source: the retrieval that LongBench v2 points to, THUDM/LongCite at d7d772e3, utils/retrieve.py. A window that ends
    within a character has U+FFFD there. `start` and `end` are found by looking for the decoded text, so they are None
    where a tokenizer changes a text (lower-cases it, say).
    """
    ids = tokenizer.encode(text, special_tokens=False)
    chunks = []
    position = 0
    for first in range(0, len(ids), size):
        content = tokenizer.decode(ids[first : first + size])
        whole = content.strip(LOST)
        found = text.find(whole, position) if whole else -1
        if found >= 0:
            position = found + len(whole)
            chunks.append(Chunk(content, found, position))
        elif content:
            chunks.append(Chunk(content, None, None))
    return chunks


def places(content: str, source: str) -> list[int]:
    """Where each character of `source` stands in a chunk's content, which has more characters here and there.

    What was added is told from the text: a space that the splitter adds never stands before a space, since a separator
    includes the white space after it.
    """
    found = []
    position = 0
    for character in source:
        position = content.index(character, position)
        found.append(position)
        position += 1
    return found


@functools.lru_cache(maxsize=2)
def _tokenizer(name: str) -> Tokenizer:
    from longflow.engines.tokenizers import load_tokenizer

    return load_tokenizer(os.path.expanduser(name))
