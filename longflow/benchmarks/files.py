"""What benchmarks share in reading other people's files (where they are, rows, checks) and in writing results.

Contexts are long and files have hundreds of megabytes: rows are streamed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from longflow.errors import UserError
from longflow.jsonio import DECODER, parse_jsonl, read_jsonl, unreadable
from longflow.records import Record

Row = dict[str, Any]
RESERVED = ("id", "question_id", "evidence", "confusing")
"""Keys of a record that are ours; a file's own under these names are left out of the record's fields."""

CHUNK = 1 << 20
"""Characters of a JSON list that are read at a time."""

LONGEST_ROW = 1 << 28
"""Bytes of a row in an archive: a hundred times the longest there are. What is longer is no row but a bomb."""

_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError)
"""What reading a damaged archive may raise, beside OSError."""


def find(places: Sequence[Path], what: str) -> str:
    """The first of these places that is a file. Raises UserError, beginning with `what`, naming all of them."""
    for place in places:
        if place.is_file():
            return str(place)
    raise UserError(f"{what}; looked for {', '.join(map(str, places))}")


def read_records(
    path: str, member: str, expected: int, what: str, make: Callable[[int, Row, str], Record]
) -> Iterator[Record]:
    """Yield the records made of a file's rows, in its order.

    Args:
        path: a JSONL file, a JSON list of rows (.json), or a zip archive (.zip).
        member: the JSONL file's name in an archive, whatever folder it is in there.
        expected: rows there have to be.
        what: whose rows these are, for the message about another number, such as "qasper has 200".
        make: makes a record of a row's index, the row, and what to call it in messages.

    Raises UserError for a file that cannot be read, a row that is not JSON, and another number of rows.
    """
    where, rows = _open_rows(Path(path), member)
    # Bzip2 says OSError to what is damaged; of a file that is no archive that is the disk's word.
    damage = (*_DAMAGE, OSError) if path.endswith(".zip") else _DAMAGE
    count = 0
    try:
        for count, row in enumerate(rows, 1):
            if count > expected:  # at once: there may be any number of them
                raise UserError(f"{where}: at least {count} records, but {what}; another file was expected")
            yield make(count - 1, row, f"{where}, record {count}")
    except damage as error:
        raise UserError(
            f"{where}: damaged after record {count} ({error}); delete it to have it fetched again"
        ) from error
    if count != expected:
        raise UserError(f"{where}: {count} records, but {what}; the file is not whole")


def _open_rows(path: Path, member: str) -> tuple[str, Iterator[Row]]:
    """Where the rows are, for messages, and the rows."""
    if path.suffix == ".json":
        return str(path), read_json_list(path)
    if path.suffix != ".zip":
        return str(path), read_jsonl(path)
    try:
        archive = zipfile.ZipFile(path)
        # Members are read in place, never unpacked, so a member's name cannot lead anywhere.
        name = next((name for name in archive.namelist() if name.rsplit("/", 1)[-1] == member), None)
        stream = archive.open(name) if name is not None else None
    except (OSError, *_DAMAGE) as error:
        raise UserError(f"{path}: not a readable zip archive ({error}); delete it to have it fetched again") from error
    if stream is None:
        raise UserError(f"{path}: holds no {member}; it has {', '.join(archive.namelist()[:6]) or 'nothing'}")
    return f"{path}:{name}", parse_jsonl(_lines(stream, f"{path}:{name}"), f"{path}:{name}")


def _lines(stream: IO[bytes], where: str) -> Iterator[bytes]:
    """The lines of an archive's member, which may be a thousand times as long as the archive."""
    number = 0
    with stream:
        while line := stream.readline(LONGEST_ROW + 1):
            number += 1
            if len(line) > LONGEST_ROW:
                raise UserError(f"{where}, line {number}: longer than {LONGEST_ROW >> 20} MB; rows were expected")
            yield line


def read_json_list(path: str | Path) -> Iterator[Row]:
    """Yield the objects of a file that is one JSON list, one by one: no more than a few of them are in memory.

    Raises UserError naming the file and the record for what is missing, not UTF-8, not JSON or not an object.
    """
    try:
        stream = open(path, encoding="utf-8-sig", newline="")  # noqa: SIM115 - closed below; opened apart for its error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    with stream:
        try:
            yield from _objects(stream, str(path))
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8 ({error.reason})") from error


def _objects(stream: IO[str], where: str) -> Iterator[Row]:
    buffer = stream.read(CHUNK).lstrip()
    if not buffer.startswith("["):
        raise UserError(f"{where}: a JSON list of records was expected; it begins with {buffer[:20]!r}")
    buffer, count = buffer[1:], 0
    while True:
        buffer = buffer.lstrip()
        if buffer.startswith("]"):
            if (buffer[1:] + stream.read(CHUNK)).strip():
                raise UserError(f"{where}: there is more after the end of the list")
            return
        try:
            # The list's next item: the first has no comma before it.
            if buffer and (buffer[0] == ",") != (count > 0):
                raise UserError(f"{where}: not JSON after record {count} (a comma or the list's end was expected)")
            start = 1 if count else 0
            while start < len(buffer) and buffer[start].isspace():
                start += 1
            value, end = DECODER.raw_decode(buffer, start)
        except json.JSONDecodeError as error:
            # A text that ends too early fails at its end, or at the beginning of its last string.
            early = error.msg.startswith("Unterminated string") or error.pos >= len(buffer) - 16
            # Twice as much each time, so that a record of many pieces is not begun anew for each of them.
            more = stream.read(max(CHUNK, len(buffer))) if early else ""
            if not more:
                place = "ends within" if early else "not JSON in"
                raise UserError(f"{where}: {place} record {count + 1} ({error.msg})") from error
            buffer += more
            continue
        except (ValueError, RecursionError) as error:
            what, why = unreadable(error)
            raise UserError(f"{where}: {what} in record {count + 1} {why}") from error
        count += 1
        if not isinstance(value, dict):
            raise UserError(f"{where}: record {count} should be a JSON object, found {type(value).__name__}")
        buffer = buffer[end:]
        yield value


def require(row: Row, kinds: Mapping[str, type], where: str) -> None:
    """See to it that a row has these keys with values of these types. Raises UserError naming the first at fault."""
    for key, kind in kinds.items():
        value = row.get(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise UserError(f"{where}: {key!r} should be a {kind.__name__}, found {type(value).__name__}")


def require_texts(row: Row, key: str, where: str) -> None:
    """See to it that a row's value is a list of strings. Raises UserError."""
    require(row, {key: list}, where)
    if not all(isinstance(item, str) for item in row[key]):
        raise UserError(f"{where}: {key!r} should be a list of strings")


def fields_of(row: Row, **more: Any) -> Row:
    """A record's fields: the row without what is ours, and more."""
    return {key: value for key, value in row.items() if key not in RESERVED} | more


def prompt_source(table: Mapping[str, Any], file: str, prompts_from: str, downloads: str, key: str) -> str:
    """Where a prompt file of a benchmark's repository is.

    Args:
        table: the benchmark's table, with `repository`, `commit` and `prompt_files`.
        file: the file's path in the repository.
        prompts_from: `github`, or a folder that is a clone of the repository.
        downloads: the folder where downloads are expected, below it the commit.
        key: the option's key in the configuration, for the message.

    Raises UserError naming every place looked at if a folder has no such file.
    """
    name = file.rsplit("/", 1)[-1]
    if prompts_from == "github":
        return f"{downloads}/{table['commit']}/{name}"
    folder = Path(prompts_from)
    parts = file.split("/")
    places = [folder.joinpath(*parts[start:]) for start in range(len(parts))]
    return find(places, f"{key}: {folder} is no clone of {table['repository']}: it has no {file}")


def read_prompt_file(table: Mapping[str, Any], file: str, path: str) -> str:
    """The text of a prompt file, which has to be the one at the table's commit. Raises UserError."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    found, wanted = hashlib.sha256(content).hexdigest(), table["prompt_files"][file]
    if found != wanted:
        raise UserError(
            f"{path}: not {file} of {table['repository']} at commit {table['commit'][:12]} (SHA-256 {found[:12]}…, "
            f"expected {wanted[:12]}…); prompts of one's own go into the configuration, under prompts:"
        )
    return content.decode("utf-8")


def download(table: Mapping[str, Any], file: str, revision: str) -> dict[str, str]:
    """Where a downloaded file comes from, as the specification of a download.

    A prompt file is {github, commit, file, sha256} (see `longflow.github`), any other {hub, revision, file}.
    """
    for path, digest in table["prompt_files"].items():
        if path.rsplit("/", 1)[-1] == file:
            return {"github": table["repository"], "commit": revision, "file": path, "sha256": digest}
    return {"hub": table["hub"], "revision": revision, "file": file}


def csv_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV table as pandas writes it in the references: line feeds, 50.0 for a float, nothing for None."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()
