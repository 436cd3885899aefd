"""JSON in and out: canonical text, digests, streamed JSONL, files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from longflow.errors import UserError


def canonical(value: Any) -> str:
    """JSON text that depends on the value alone: keys sorted, no spaces, text as UTF-8.

    Raises ValueError for NaN and infinities, which are not JSON.
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """SHA-256 (hex) of a value's canonical JSON. Lone surrogates, which models can produce, are allowed."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def dump_line(value: dict[str, Any]) -> str:
    """One JSONL line, keys in the order given, text as UTF-8, with its line end.

    A lone surrogate cannot be encoded in UTF-8, so such a line falls back to ASCII escapes, which read back equal.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text + "\n"


def read_jsonl(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSONL file one by one; blank lines are passed over.

    Raises UserError naming the file and the line for what is missing, not UTF-8, not JSON or not an object.
    """
    try:
        stream = open(path, "rb")  # noqa: SIM115 - closed below; opened apart to word its own error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    with stream:
        yield from parse_jsonl(stream, str(path))


def parse_jsonl(lines: Iterable[bytes], where: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of JSONL lines; `where` names them in errors. Raises UserError as `read_jsonl`."""
    for number, raw in enumerate(lines, 1):
        if not raw.strip():
            continue
        try:
            value = DECODER.decode(raw.decode("utf-8-sig" if number == 1 else "utf-8"))
        except UnicodeDecodeError as error:
            raise UserError(f"{where}, line {number}: not UTF-8 (byte {error.start + 1})") from error
        except json.JSONDecodeError as error:
            raise UserError(f"{where}, line {number}: not JSON ({error.msg}, column {error.colno})") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}, line {number}: {' '.join(unreadable(error))}") from error
        if not isinstance(value, dict):
            raise UserError(f"{where}, line {number}: a JSON object was expected, found {type(value).__name__}")
        yield value


class _NoNumberError(ValueError):
    """NaN or an infinity, which Python reads and JSON does not have, or a number that would become one."""


def _no_number(name: str) -> None:
    raise _NoNumberError(name, "is not JSON; null was expected")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _NoNumberError(text[:20], "is larger than any number can be; a finite one was expected")
    return value


DECODER = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)
"""Reads JSON of other people: what it gives can be written as JSON again."""


def unreadable(error: Exception) -> tuple[str, str]:
    """What in a text `DECODER` could not read, and why, for what is no mere fault of JSON's grammar."""
    if isinstance(error, _NoNumberError):
        return error.args
    if isinstance(error, RecursionError):
        return "a value", "is nested too deeply to be read"
    return "a whole number", "has more digits than can be read"


def read_json(path: str | Path) -> Any:
    """The value in a JSON file. Raises UserError naming the file."""
    try:
        return json.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.start + 1})") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: not JSON ({error.msg}, line {error.lineno})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {' '.join(unreadable(error))}") from error


@contextlib.contextmanager
def atomic_write(path: str | Path) -> Iterator[IO[str]]:
    """A text file (UTF-8) that replaces `path` when the block ends well and leaves it alone otherwise.

    The data are on disk before the name changes, so that a crash leaves the old file or the new one, never a half.
    """
    target = Path(path)
    name: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        with open(handle, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException as error:
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)
        if isinstance(error, OSError) and _of_temporary(error, target):
            # Told of the file that was meant: a full disk names no file, and the temporary one is nobody's business.
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise


def _of_temporary(error: OSError, target: Path) -> bool:
    return error.filename is None or Path(error.filename).name.startswith(f".{target.name}.")


def write_text(path: str | Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_write(path) as stream:
        stream.write(text)


def write_json(path: str | Path, value: Any) -> None:
    """Write a JSON file for people to read (indented by 2, keys in the order given), atomically."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def write_jsonl(path: str | Path, values: Iterable[dict[str, Any]]) -> None:
    """Write a JSONL file atomically, one line a value."""
    with atomic_write(path) as stream:
        for value in values:
            stream.write(dump_line(value))
