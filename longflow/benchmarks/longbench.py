"""LongBench (THU): 21 data sets of six categories in English, Chinese and code.

Tasks, records and result layout reproduce THUDM/LongBench, folder LongBench/, at commit
2e00731f8d0bff23dc4325161044d0ed8af94c1e (pred.py, eval.py, config/, README.md). The hub data set is a loading script,
which `datasets` no longer runs: its `data.zip` is read itself, or a local folder.

The prompts belong to that repository. They are taken from it, at that commit and checked, when records are prepared:
each record carries its data set's template in its field `template`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from longflow import benchmarks
from longflow.benchmarks import BenchmarkOptions, CellSummary, Task, files
from longflow.benchmarks.lveval import prompt_limit
from longflow.records import Record

__all__ = [
    "COLUMNS",
    "MEANS",
    "Options",
    "download",
    "file_name",
    "ordered",
    "prepare",
    "prompt_limit",
    "result_csv",
    "result_json",
    "sources",
]

TABLE = benchmarks.table("longbench")
PROMPTS = "LongBench/config/dataset2prompt.json"

_FIELDS = {"input": str, "context": str, "length": int, "dataset": str, "language": str, "_id": str}


class Options(BenchmarkOptions):
    """LongBench, or LongBench-E, in a run's configuration."""

    source: str = Field(
        "hub",
        description="Where the data come from: hub, or a folder with {dataset}.jsonl (also in data/) or data.zip.",
    )
    revision: str | None = Field(
        None, pattern=r"^[\w.-]+$", description="Revision of the hub data set; default: the table's."
    )
    prompts_from: str = Field(
        "github", description="Where the prompts come from: github, or a folder with a clone of THUDM/LongBench."
    )


def download(file: str, revision: str) -> dict[str, str]:
    """Where a file in {resources}/downloads/longbench/{revision}/ comes from, as a download's specification."""
    return files.download(TABLE, file, revision)


def sources(task: Task, length: str, options: Options, resources: str) -> list[str]:
    """The file that holds the records, and the prompt file unless the run brings a prompt of its own.

    LongBench and LongBench-E share their downloads. Raises UserError naming every place looked at if a local folder
    lacks one.
    """
    downloads, key = f"{resources}/downloads/longbench", f"benchmarks.{task.benchmark}"
    if options.source == "hub":
        found = [f"{downloads}/{options.revision or TABLE['revision']}/data.zip"]
    else:
        folder, name = Path(options.source), file_name(task)
        places = [folder / name, folder / "data" / name, folder / "data.zip"]
        found = [files.find(places, f"{key}.source: {folder} has no records of {task.dataset}")]
    if task.dataset not in options.prompts:
        found.append(files.prompt_source(TABLE, PROMPTS, options.prompts_from, downloads, f"{key}.prompts_from"))
    return found


def file_name(task: Task) -> str:
    """The JSONL file of a data set; LongBench-E's end in _e."""
    return f"{task.dataset}{'_e' if task.benchmark == 'longbench_e' else ''}.jsonl"


def prepare(task: Task, length: str, options: Options, sources: Sequence[str]) -> Iterator[Record]:
    """The records of one data set, in the file's order, checked one by one, each with its template.

    A record's prompt is `template.format(**fields)`, as in the reference. Its question is named by the benchmark's
    `_id`. Raises UserError for a missing member, a prompt file that is another, a row without a field, and a number of
    rows other than the benchmark's.
    """
    own = {"template": _template(task, sources[1])} if len(sources) > 1 else {}
    with_classes = bool(task.extra.get("all_classes"))

    def make(index: int, row: files.Row, where: str) -> Record:
        files.require(row, _FIELDS, where)
        files.require_texts(row, "answers", where)
        if with_classes or row.get("all_classes") is not None:
            files.require_texts(row, "all_classes", where)
        return Record(id=f"{task.dataset}_{index:04d}", question_id=row["_id"], fields=files.fields_of(row, **own))

    yield from files.read_records(sources[0], file_name(task), task.n, f"{task.dataset} has {task.n}", make)


def _template(task: Task, path: str) -> str:
    templates: dict[str, str] = json.loads(files.read_prompt_file(TABLE, PROMPTS, path))
    return templates[task.dataset]


def ordered(summaries: Sequence[CellSummary], table: Mapping[str, Any]) -> list[CellSummary]:
    """Summaries in the benchmark's order of data sets."""
    order = list(table["datasets"])
    return sorted(summaries, key=lambda summary: order.index(str(summary["dataset"])))


def result_json(summaries: Sequence[CellSummary]) -> str:
    """result.json as LongBench's eval.py writes it: {data set: score}, indented by 4, no final line end.

    The reference's order is the file system's; here it is the benchmark's. A data set without a scored row, which ends
    the reference with an error, is left out.
    """
    scores = {str(s["dataset"]): s["score"] for s in ordered(summaries, TABLE) if s["score"] is not None}
    return json.dumps(scores, ensure_ascii=False, indent=4, allow_nan=False)


def result_csv(summaries: Sequence[CellSummary]) -> str:
    """The numbers of result.json as a table."""
    rows = [(s["dataset"], s["score"]) for s in ordered(summaries, TABLE) if s["score"] is not None]
    return files.csv_table(("dataset_name", "score"), rows)


def _means() -> dict[str, list[str]]:
    """The averages of LongBench's README: of the data sets of a category, and of the six categories.

    The data sets of code count in both languages.
    """
    means: dict[str, list[str]] = {}
    for language, name in (("zh", "Chinese"), ("en", "English")):
        for category in TABLE["categories"]:
            means[f"{language}/{category}"] = [
                f"{dataset}/full"
                for dataset, entry in TABLE["datasets"].items()
                if entry["category"] == category and entry["language"] in (language, "code")
            ]
        means[name] = [f"{language}/{category}" for category in TABLE["categories"]]
    return means


MEANS: Mapping[str, Sequence[str]] = _means()
COLUMNS: Sequence[str] = tuple(MEANS)
