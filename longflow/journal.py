"""The append-only store that makes runs resumable.

A cell's journal is a folder of JSONL files, one for each process that ever wrote to it (no locks, safe on a shared
file system). A line is complete in itself, so that files can be copied, concatenated and merged:

- a *completion* line holds the answer to a request under the request's key;
- a *rendering* line maps a record and the way its prompt is made to that key, which spares tokenising it again.

A key is a digest of everything that may change the answer (see `predict.request_key`) and of nothing else. A torn or
foreign line is dropped and counted; of two lines with one key the first wins. Failures are not kept here.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from longflow.errors import UserError

FORMAT = 1
"""Version of the lines. A reader refuses a later one by name and never guesses."""


@dataclass(frozen=True)
class Answer:
    """A completion as the journal keeps it. `libraries` names the versions that made it."""

    key: str
    text: str
    finish_reason: str
    prompt_tokens: int | None
    answer_tokens: int | None
    seconds: float | None
    libraries: str


@dataclass(frozen=True)
class Rendering:
    """How a record was rendered: the request's key, and what truncation kept (see `records.Prediction`)."""

    id: str
    key: str
    tokens: int | None
    kept_head: int | None
    kept_tail: int | None
    context_start: int | None


_OPTIONAL_INT = (int, type(None))
_KINDS: dict[str, tuple[type, dict[str, tuple[type, ...]]]] = {
    "completion": (
        Answer,
        {
            "key": (str,),
            "text": (str,),
            "finish_reason": (str,),
            "prompt_tokens": _OPTIONAL_INT,
            "answer_tokens": _OPTIONAL_INT,
            "seconds": (int, float, type(None)),
            "libraries": (str,),
        },
    ),
    "rendering": (
        Rendering,
        {
            "id": (str,),
            "key": (str,),
            "tokens": _OPTIONAL_INT,
            "kept_head": _OPTIONAL_INT,
            "kept_tail": _OPTIONAL_INT,
            "context_start": _OPTIONAL_INT,
        },
    ),
}


class Journal:
    """The journal of one cell: everything earlier processes wrote, and a file of this process's own.

    Reading happens once, on opening. The own file is made at the first line written. Use it as a context manager.

    Attributes:
        answers: completions by key.
        renderings: renderings by id.
        dropped: how many lines were torn or foreign.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.answers: dict[str, Answer] = {}
        self.renderings: dict[str, Rendering] = {}
        self.dropped = 0
        self._file: int | None = None
        for path in sorted(self.folder.glob("*.jsonl")):
            self._read(path)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close this process's file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def add(self, line: Answer | Rendering) -> None:
        """Keep a line. It is on disk when this returns.

        Raises UserError if it cannot be written (a full disk, a read-only folder); what was kept before stays.
        """
        kind = "completion" if isinstance(line, Answer) else "rendering"
        # JSON escapes every line break and, as ASCII, even lone surrogates: a line is a line whatever a model says.
        text = json.dumps({"v": FORMAT, "kind": kind, **asdict(line)}, ensure_ascii=True, allow_nan=False)
        try:
            if self._file is None:
                self._file = self._open()
            rest = memoryview(text.encode("ascii") + b"\n")
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            raise UserError(
                f"{self.folder}: the journal cannot be written ({error.strerror}); what it holds is kept, run again "
                "when there is room and permission"
            ) from error
        if isinstance(line, Answer):
            self.answers.setdefault(line.key, line)
        else:
            self.renderings.setdefault(line.id, line)

    def _open(self) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        host = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())
        name = self.folder / f"{host}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)

    def _read(self, path: Path) -> None:
        try:
            stream = open(path, "rb")  # noqa: SIM115 - closed below; opened apart to word its own error
        except OSError as error:
            raise UserError(f"{path}: the journal cannot be read ({error.strerror})") from error
        with stream:
            for raw in stream:
                # Without its line end a line was cut off, even where what is left of it happens to be JSON.
                line = _parse(raw, path) if raw.endswith(b"\n") else None
                if isinstance(line, Answer):
                    self.answers.setdefault(line.key, line)
                elif isinstance(line, Rendering):
                    self.renderings.setdefault(line.id, line)
                else:
                    self.dropped += 1


def _parse(raw: bytes, path: Path) -> Answer | Rendering | None:
    """The line, or None if it is torn or foreign. Raises UserError for a later format."""
    try:
        value: Any = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    version = value.pop("v", None)
    if isinstance(version, int) and version > FORMAT:
        raise UserError(
            f"{path}: journal format {version} is of a later longflow (this one reads up to {FORMAT}); update longflow "
            "or keep this journal elsewhere"
        )
    kind = _KINDS.get(str(value.pop("kind", None)))
    if version != FORMAT or kind is None:
        return None
    made, fields = kind
    if value.keys() != fields.keys() or not all(
        isinstance(value[name], types) and not isinstance(value[name], bool) for name, types in fields.items()
    ):
        return None
    line = made(**value)
    assert isinstance(line, Answer | Rendering)
    return line
