"""The append-only store that makes runs resumable.

A cell's journal is a folder of JSONL files, called segments, one for each process that ever wrote to it (no locks,
safe on a shared file system). A line is complete in itself, so that files can be copied, concatenated and merged:

- a *completion* line holds the answer to a request under the request's key;
- a *rendering* line maps a record and the way its prompt is made to that key, which spares tokenising it again.

A key is a digest of everything that may change the answer (see `predict.request_key`) and of nothing else. A torn or
foreign line is dropped and counted; of two lines with one key the first wins. Failures are not kept here.

People look after journals with `journal_tool`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, get_args, get_type_hints

from longflow.errors import UserError

FORMAT = 1
"""Version of the lines. A reader refuses a later one by name and never guesses.

A new field that has a default needs no new format: it is left out where it says nothing, lines without it are read,
and an older longflow drops the lines that have it and computes those answers again. Whatever changes the meaning of
what is there needs one.
"""

COMPACTED = "compacted-"
"""How the names of segments begin that were made out of others. They are read first: what won once wins again."""

TAKEN = ".taken"
"""How the names of segments end whose lines were put into another one and that are about to go. They are read last."""

_LONGEST = 1e9
"""Seconds that no answer takes."""

_TRIES = 5
"""How often to begin again because segments were replaced by others meanwhile."""


@dataclass(frozen=True)
class Answer:
    """A completion as the journal keeps it. `libraries` names the versions that made it.

    `cached_tokens` are those of the prompt that a server had in its cache, `note` is whatever an engine says of how
    the answer was made. Both are None where there is nothing to say.
    """

    key: str
    text: str
    finish_reason: str
    prompt_tokens: int | None
    answer_tokens: int | None
    seconds: float | None
    libraries: str
    cached_tokens: int | None = None
    note: str | None = None


@dataclass(frozen=True)
class Rendering:
    """How a record was rendered: the request's key, and what truncation kept (see `records.Prediction`)."""

    id: str
    key: str
    tokens: int | None
    kept_head: int | None
    kept_tail: int | None
    context_start: int | None


Line = Answer | Rendering


class _Kind:
    """One kind of line: its class, and its fields with the types that JSON may give them."""

    def __init__(self, made: type[Answer] | type[Rendering]) -> None:
        self.made = made
        hints = get_type_hints(made)
        # A whole number is a float too, in JSON.
        self.types = {
            name: {*(get_args(hint) or (hint,)), *((int,) if float in get_args(hint) else ())}
            for name, hint in hints.items()
        }
        # Fields with a default may be absent.
        self.defaults = {
            field.name: field.default for field in dataclasses.fields(made) if field.default is not dataclasses.MISSING
        }
        self.needed = self.types.keys() - self.defaults.keys()

    def line(self, value: dict[str, Any]) -> Line | None:
        """The line with these fields, or None if they are not its fields."""
        if not self.needed <= value.keys() <= self.types.keys():
            return None
        # type() and not isinstance(), for which True is an int.
        if not all(type(given) in self.types[name] for name, given in value.items()):
            return None
        return self.made(**value)


_KINDS = {"completion": _Kind(Answer), "rendering": _Kind(Rendering)}


def dump(line: Line) -> bytes:
    """A line of the journal, with its line end."""
    name = "completion" if isinstance(line, Answer) else "rendering"
    defaults = _KINDS[name].defaults
    fields = {
        field: value
        for field, value in dataclasses.asdict(line).items()
        if field not in defaults or value != defaults[field]
    }
    # JSON escapes every line break and, as ASCII, even lone surrogates: a line is a line whatever a model says.
    text = json.dumps({"v": FORMAT, "kind": name, **fields}, ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def parse(raw: bytes, where: str | Path) -> Line | None:
    """The line in these bytes, or None if it is torn or foreign. Raises UserError naming `where` for a later format."""
    # Without its line end a line was cut off, even where what is left of it happens to be JSON.
    if not raw.endswith(b"\n"):
        return None
    try:
        value: Any = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    version = value.pop("v", None)
    if type(version) is int and version > FORMAT:
        raise UserError(
            f"{where}: journal format {version} is of a later longflow (this one reads up to {FORMAT}); update "
            "longflow or keep this journal elsewhere"
        )
    kind = value.pop("kind", None)
    if type(version) is not int or version != FORMAT or not isinstance(kind, str) or kind not in _KINDS:
        return None
    line = _KINDS[kind].line(value)
    if isinstance(line, Answer) and line.seconds is not None and not abs(line.seconds) < _LONGEST:
        return None  # 1e999 is JSON, and no duration
    return line


def _refuse(name: str) -> None:
    raise ValueError(name)


def segments(folder: str | Path) -> list[Path]:
    """The segments of a cell's journal in the order in which they are read; none if the folder does not exist.

    Raises UserError for a folder that cannot be read: it is not to be taken for an empty one.
    """
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if is_segment(entry.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{folder}: the journal cannot be read ({error.strerror})") from error
    return [Path(folder) / name for name in sorted(names, key=_order)]


def is_segment(name: str) -> bool:
    """Whether a file of this name is a segment; hidden files are not finished."""
    return name.removesuffix(TAKEN).endswith(".jsonl") and not name.startswith(".")


def _order(name: str) -> tuple[bool, bool, str]:
    return name.endswith(TAKEN), not name.startswith(COMPACTED), name


def read_segment(path: str | Path) -> Iterator[Line | None]:
    """The lines of a segment, None for a torn or foreign one. Raises FileNotFoundError, and UserError as `parse`."""
    try:
        with open(path, "rb") as stream:
            for raw in stream:
                yield parse(raw, path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path}: the journal cannot be read ({error.strerror})") from error


def segment_name() -> str:
    """A name for a segment that nobody else has: host, process, and a random number."""
    host = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname()).lstrip(".")
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"


def write_segment(folder: str | Path, lines: Iterable[Line], prefix: str = "") -> Path:
    """Write a whole segment at once. It has its name only when all of it is on disk. Returns its path."""
    target = Path(folder) / (prefix + segment_name())
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        with open(temporary, "xb") as stream:
            for line in lines:
                stream.write(dump(line))
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise _unwritable(Path(folder), error) from error
        raise
    sync_folder(target.parent)
    return target


def sync_folder(folder: str | Path) -> None:
    """Put on disk which files a folder has, where the file system can be asked to."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(
        f"{folder}: the journal cannot be written ({error.strerror}); what it holds is kept, run again when there is "
        "room and permission"
    )


class Journal:
    """The journal of one cell: everything earlier processes wrote, and a segment of this process's own.

    Reading happens once, on opening. The own segment is made at the first line written. Use it as a context manager.

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
        self._path = self.folder
        for _ in range(_TRIES):
            try:
                self._read()
            except FileNotFoundError:
                continue  # segments were compacted meanwhile: their lines are in another one now
            return
        raise UserError(f"{self.folder}: the journal's files vanish while it is read; run again when that has ended")

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close this process's segment."""
        if self._file is not None:
            handle, self._file = self._file, None
            os.close(handle)

    def add(self, line: Line) -> None:
        """Keep a line. It is on disk when this returns.

        Raises UserError if it cannot be written (a full disk, a read-only folder); what was kept before stays.
        """
        text = dump(line)
        try:
            for _ in range(_TRIES):
                self._append(text)
                if self._in_place():
                    break
                # Somebody took the segment away to compact it: what it held before is kept elsewhere, this line
                # may not be.
                self.close()
            else:
                raise OSError(errno.ESTALE, "its files are taken away while they are written")
        except OSError as error:
            raise _unwritable(self.folder, error) from error
        self._hold(line)

    def _hold(self, line: Line | None) -> None:
        if isinstance(line, Answer):
            self.answers.setdefault(line.key, line)
        elif isinstance(line, Rendering):
            self.renderings.setdefault(line.id, line)
        else:
            self.dropped += 1

    def _append(self, text: bytes) -> None:
        if self._file is None:
            self._open()
        assert self._file is not None
        before = os.fstat(self._file).st_size
        rest = memoryview(text)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except BaseException:
            # A line that was cut off would spoil the next one, were there room for it later.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            self.close()
            raise

    def _open(self) -> None:
        new = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = self.folder / segment_name()
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        # The name has to be on disk as well, and the folder's own: it is five levels below the journal's, all new.
        for folder in (self.folder, *(list(self.folder.parents)[:6] if new else ())):
            sync_folder(folder)

    def _in_place(self) -> bool:
        """Whether the own segment still has its name."""
        assert self._file is not None
        try:
            there, own = os.stat(self._path), os.fstat(self._file)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)

    def _read(self) -> None:
        self.answers.clear()
        self.renderings.clear()
        self.dropped = 0
        for path in segments(self.folder):
            for line in read_segment(path):
                self._hold(line)
