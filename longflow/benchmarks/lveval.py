"""LV-Eval (Infinigence): 11 data sets, each asked at five length levels.

Tasks, file layout and result layout reproduce infinigence/LVEval at commit 63e7ae939bd347c76b2cdb1cebfb216faca26897
(config.py, prediction.py, evaluation.py). The hub data set is a loading script, which `datasets` no longer runs: its
files are read themselves, `{dataset}.zip` at a pinned revision or a local folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from longflow.benchmarks import BenchmarkOptions, CellSummary, Task, length_units
from longflow.benchmarks.files import Row, csv_table, fields_of, find, read_records, require, require_texts
from longflow.errors import UserError
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
    return [find(places, f"benchmarks.lveval.source: {folder} has no records of {task.dataset} at {length}")]


def prepare(task: Task, length: str, options: Options, sources: Sequence[str]) -> Iterator[Record]:
    """The records of one data set at one length, in the file's order, checked one by one.

    Raises UserError for a missing member, a row without a field, and a number of rows other than the benchmark's.
    """

    def make(index: int, row: Row, where: str) -> Record:
        require(row, {"input": str, "context": str}, where)
        require_texts(row, "answers", where)
        if not isinstance(row.get("answer_keywords"), str | None):
            raise UserError(f"{where}: 'answer_keywords' should be text, found {type(row['answer_keywords']).__name__}")
        return Record(
            id=f"{task.dataset}_{length}_{index:04d}",
            question_id=question_id(task.dataset, row["input"], row["answers"]),
            fields=fields_of(row),
        )

    member = f"{task.dataset}_{length}.jsonl"
    yield from read_records(sources[0], member, task.n, f"{task.dataset} has {task.n} at {length}", make)


def _sort_key(name: str) -> tuple[list[str], int]:
    """The reference's order of result files: groups of letters, case-sensitively, then the first number."""
    number = re.search(r"\d+", name)
    return re.findall(r"[a-zA-Z]+", name), int(number[0]) if number else 0


def _sorted(summaries: Sequence[CellSummary]) -> list[tuple[str, str, float]]:
    """Data set, length and score of the cells that have a score, in the reference's order."""
    scores = [(str(s["dataset"]), str(s["length"]), float(s["score"])) for s in summaries if s["score"] is not None]
    return sorted(scores, key=lambda cell: _sort_key(f"{cell[0]}_{cell[1]}"))


def result_json(summaries: Sequence[CellSummary]) -> str:
    """result.json as LV-Eval's evaluation.py writes it: flat, in its order, indented by 4, no final line end."""
    flat = {f"{dataset}_{length}": score for dataset, length, score in _sorted(summaries)}
    return json.dumps(flat, ensure_ascii=False, indent=4)


def result_csv(summaries: Sequence[CellSummary]) -> str:
    """result.csv as LV-Eval's evaluation.py writes it, but for its columns, which stand by length.

    The reference orders the columns by first appearance, which in a partial run gives 16k, 256k, 32k.
    """
    rows: dict[str, dict[str, float]] = {}
    scores = _sorted(summaries)
    for dataset, length, score in scores:
        rows.setdefault(dataset, {})[length] = score
    lengths = sorted({length for _, length, _ in scores}, key=lambda name: (length_units(name), name))
    body = [[dataset, *(by_length.get(length) for length in lengths)] for dataset, by_length in rows.items()]
    return csv_table(["dataset_name", *lengths], body)


def prompt_limit(window: int) -> int:
    """Tokens a raw prompt may have: N x 1000 - 500 for a window of N x 1024 tokens, else window - 500.

    The reference names its limits 3500, 7500, 15500, 31500, 127500 and 199500 for windows called 4k to 200k, the last
    one being 200,000 tokens.
    """
    return (window // 1024 * 1000 if window % 1024 == 0 else window) - 500
