"""LV-Eval (Infinigence): 11 data sets, each asked at five length levels.

Tasks, file layout and result layout reproduce infinigence/LVEval at commit 63e7ae939bd347c76b2cdb1cebfb216faca26897
(config.py, prediction.py, evaluation.py). The hub data set is a loading script, which `datasets` no longer runs: its
files are read themselves, `{dataset}.zip` at a pinned revision or a local folder.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from longflow.benchmarks import BenchmarkOptions, CellScore, Task, length_units
from longflow.errors import UserError
from longflow.jsonio import parse_jsonl, read_jsonl
from longflow.records import Record, question_id


class Options(BenchmarkOptions):
    """LV-Eval in a run's configuration."""

    source: str = Field(
        "hub",
        description="Where the data come from: hub, or a folder with {dataset}.zip, {dataset}_{length}.jsonl or "
        "{dataset}/{dataset}_{length}.jsonl.",
    )
    revision: str | None = Field(None, description="Revision of the hub data set; default: the pinned one.")


def hub_file(task: Task) -> str:
    """The file of the hub data set that holds a task's five levels."""
    return f"{task.dataset}.zip"


def sources(task: Task, length: str, options: Options, resources: str) -> list[str]:
    """The one file that holds the records: the downloaded archive, or what the local folder has.

    Raises UserError naming every place looked at if a local folder has none.
    """
    if options.source == "hub":
        return [f"{resources}/downloads/lveval/{hub_file(task)}"]
    name = f"{task.dataset}_{length}.jsonl"
    folder = Path(options.source)
    places = [folder / name, folder / task.dataset / name, folder / hub_file(task)]
    for place in places:
        if place.is_file():
            return [str(place)]
    raise UserError(
        f"benchmarks.lveval.source: {folder} has no records of {task.dataset} at {length}; "
        f"looked for {', '.join(map(str, places))}"
    )


def prepare(task: Task, length: str, options: Options, sources: Sequence[str]) -> Iterator[Record]:
    """The records of one data set at one length, in the file's order, checked one by one.

    Raises UserError for a missing member, a row without a field, and a number of rows other than the benchmark's.
    """
    where, rows = _rows(task, length, Path(sources[0]))
    count = 0
    try:
        for count, row in enumerate(rows, 1):
            yield _record(task, length, count - 1, row, f"{where}, record {count}")
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UserError(
            f"{where}: damaged after record {count} ({error}); delete it to have it fetched again"
        ) from error
    if count != task.n:
        raise UserError(f"{where}: {count} records, but {task.dataset} has {task.n} at {length}; the file is not whole")


def _rows(task: Task, length: str, path: Path) -> tuple[str, Iterator[dict[str, Any]]]:
    """Where the rows are, for messages, and the rows, streamed (a file at 256k has hundreds of megabytes)."""
    if path.suffix != ".zip":
        return str(path), read_jsonl(path)
    name = f"{task.dataset}_{length}.jsonl"
    try:
        archive = zipfile.ZipFile(path)
        # Members are read in place, never unpacked, so a member's name cannot lead anywhere.
        member = next((m for m in archive.namelist() if m.rsplit("/", 1)[-1] == name), None)
        stream = archive.open(member) if member is not None else None
    except (OSError, zipfile.BadZipFile, RuntimeError) as error:
        raise UserError(f"{path}: not a readable zip archive ({error}); delete it to have it fetched again") from error
    if stream is None:
        raise UserError(f"{path}: holds no {name}; it has {', '.join(archive.namelist()[:6]) or 'nothing'}")
    return f"{path}:{member}", parse_jsonl(stream, f"{path}:{member}")


def _record(task: Task, length: str, index: int, row: dict[str, Any], where: str) -> Record:
    for key, kind in (("input", str), ("context", str), ("answers", list)):
        if not isinstance(row.get(key), kind):
            raise UserError(f"{where}: {key!r} should be a {kind.__name__}, found {type(row.get(key)).__name__}")
    if not all(isinstance(answer, str) for answer in row["answers"]):
        raise UserError(f"{where}: 'answers' should be a list of strings")
    if not isinstance(row.get("answer_keywords"), str | None):
        raise UserError(f"{where}: 'answer_keywords' should be text, found {type(row['answer_keywords']).__name__}")
    return Record(
        id=f"{task.dataset}_{length}_{index:04d}",
        question_id=question_id(task.dataset, row["input"], row["answers"]),
        fields={key: value for key, value in row.items() if key not in ("id", "question_id", "evidence", "confusing")},
    )


def _sort_key(name: str) -> tuple[list[str], int]:
    """The reference's order of result files: groups of letters, case-sensitively, then the first number."""
    number = re.search(r"\d+", name)
    return re.findall(r"[a-zA-Z]+", name), int(number[0]) if number else 0


def _sorted(scores: Sequence[CellScore]) -> list[CellScore]:
    return sorted(scores, key=lambda cell: _sort_key(f"{cell[0]}_{cell[1]}"))


def result_json(scores: Sequence[CellScore]) -> str:
    """result.json as LV-Eval's evaluation.py writes it: flat, in its order, indented by 4, no final line end."""
    flat = {f"{dataset}_{length}": score for dataset, length, score in _sorted(scores)}
    return json.dumps(flat, ensure_ascii=False, indent=4)


def result_csv(scores: Sequence[CellScore]) -> str:
    """result.csv as LV-Eval's evaluation.py writes it, but for its columns, which stand by length.

    The reference orders the columns by first appearance, which in a partial run gives 16k, 256k, 32k.
    """
    rows: dict[str, dict[str, float]] = {}
    for dataset, length, score in _sorted(scores):
        rows.setdefault(dataset, {})[length] = score
    lengths = sorted({length for _, length, _ in scores}, key=lambda name: (length_units(name), name))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["dataset_name", *lengths])
    for dataset, by_length in rows.items():
        writer.writerow([dataset, *(by_length.get(length, "") for length in lengths)])
    return out.getvalue()


def prompt_limit(window: int) -> int:
    """Tokens a raw prompt may have: N x 1000 - 500 for a window of N x 1024 tokens, else window - 500.

    The reference names its limits 3500, 7500, 15500, 31500, 127500 and 199500 for windows called 4k to 200k, the last
    one being 200,000 tokens.
    """
    return (window // 1024 * 1000 if window % 1024 == 0 else window) - 500
