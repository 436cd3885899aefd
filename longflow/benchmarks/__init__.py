"""Benchmarks: what each one *is*, as a table of tasks and a few functions.

A benchmark is a module in this package with a YAML table of the same name beside it. The table gives the tasks; the
module gives

- `Options`: its entry under `benchmarks:` in the configuration (a subclass of `BenchmarkOptions`);
- `sources(task, length, options, resources)`: the files that `prepare` reads, as paths;
- `prepare(task, length, options, sources)`: the records of one data set at one length, in the benchmark's order;
- `result_json(summaries)` and `result_csv(summaries)`: the published layout of its results, as text, made of the score
  summaries of its cells;
- `prompt_limit(window)`: the tokens a prompt may have for a model window, by the benchmark's own convention.

A module may also give

- `groups_of(row)`: the names of the groups within a cell that a row of scores belongs to (none: it lacks what tells);
- `GROUPS`: data set -> group -> records there should be, for a benchmark with groups; from the table's `groups`;
- `MEANS`: the means of its leaderboard, each unweighted, by name. A member is "dataset/length",
  "dataset/length/group" or another mean's name;
- `COLUMNS`: the means that are the columns of its leaderboard; the last one is what is ranked by;
- `download(file, revision)`: where a file under `{resources}/downloads/{benchmark}/{revision}/` that `sources` names
  comes from.

A configuration may declare benchmarks of its own, without a module or a table; see `longflow.benchmarks.custom`.

Nothing here knows of models or engines.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, cast

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from longflow.errors import UserError, nearest
from longflow.records import Record

HERE = Path(__file__).parent

LONGEST_PROMPT = 60_000
"""Bytes of a prompt template: templates travel on command lines, which hold 128 KiB."""

CellSummary = Mapping[str, Any]
"""The scores of a cell as the score stage writes them: dataset, length, score, total, n, groups ..."""


def _level_name(value: Any) -> Any:
    """A level as its name: YAML reads 500 as a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Level = Annotated[str, BeforeValidator(_level_name), WithJsonSchema({"type": ["string", "integer"]})]


class BenchmarkOptions(BaseModel):
    """What a run may choose about any benchmark."""

    model_config = ConfigDict(extra="forbid", strict=True)

    datasets: Literal["all"] | list[str] = Field("all", description="Data sets to run, or all of them.")
    lengths: Literal["all"] | list[Level] = Field("all", description="Length levels to run, or all of them.")
    prompts: dict[str, str] = Field({}, description="Own prompt templates by data set; recorded in protocol.json.")
    max_new_tokens: dict[str, int] = Field({}, description="Own answer lengths by data set, in tokens.")
    repeats: int = Field(1, ge=1, le=1000, description="Answers to each record, for the spread of sampled ones.")
    rouge_overflow: Literal["reference", "exact"] = Field(
        "reference",
        description="ROUGE-L of very long texts without full stops: 0 as the reference's recursion gives, or exact.",
    )
    code_similarity: Literal["difflib", "levenshtein"] = Field(
        "difflib",
        description="Edit similarity of code: difflib's ratio, as the reference's requirements give it, or another.",
    )

    def of_records(self, dataset: str) -> dict[str, Any]:
        """What of the options may change the records of a data set."""
        return {name: value for name, value in self.model_dump().items() if name not in BenchmarkOptions.model_fields}


@dataclass(frozen=True)
class Task:
    """One data set of a benchmark.

    `n` is the number of records at each length, `max_new_tokens` the length of an answer, `prompt` a template in
    `str.format` syntax over the fields of a record (None: each record brings its own, in its field `template`),
    `metric` a name in `longflow.metrics`. `extra` holds the table's other keys; those that other stages know are
    `answers` (first or best), `clean` (first_line), `wrap` (false: no chat wrapper) and `groups`. A data set that a
    configuration declares also has `records`, the number of records at each length, of which `n` is the largest, and
    `fields`, the names that its prompts may use.
    """

    benchmark: str
    dataset: str
    language: str
    category: str
    prompt: str | None
    max_new_tokens: int
    metric: str
    n: int
    extra: Mapping[str, Any]

    def records(self, length: str) -> int:
        """The number of records at a length."""
        return int(self.extra.get("records", {}).get(length, self.n))


class Module(Protocol):
    """What every benchmark's module offers; see the package's text, also for what a module may offer."""

    Options: type[BenchmarkOptions]

    def sources(self, task: Task, length: str, options: Any, resources: str) -> list[str]: ...
    def prepare(self, task: Task, length: str, options: Any, sources: Sequence[str]) -> Iterator[Record]: ...
    def result_json(self, summaries: Sequence[CellSummary]) -> str: ...
    def result_csv(self, summaries: Sequence[CellSummary]) -> str: ...
    def prompt_limit(self, window: int) -> int: ...


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its table, read and checked, and its module."""

    name: str
    title: str
    lengths: tuple[str, ...]
    any_length: bool
    """Whether levels other than `lengths` can be built."""
    tasks: Mapping[str, Task]
    table: Mapping[str, Any]
    module: Module

    def task(self, dataset: str) -> Task:
        """The task of a data set. Raises UserError with the nearest name."""
        try:
            return self.tasks[dataset]
        except KeyError:
            raise UserError(f"{self.name} has no data set {dataset!r}; {nearest(dataset, self.tasks)}") from None

    def length_known(self, length: str) -> bool:
        """Whether records of this length level exist or can be built."""
        return length in self.lengths or (self.any_length and re.fullmatch(r"[1-9]\d*k?", length) is not None)


def length_units(length: str) -> int:
    """The number that a length level's name stands for: 16k is 16,000; a level without a number is 0."""
    match = re.fullmatch(r"(\d+)(k?)", length)
    return int(match[1]) * (1000 if match[2] else 1) if match else 0


@functools.cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules([str(HERE)]) if (HERE / f"{m.name}.yaml").exists()))


def names() -> list[str]:
    """The benchmarks that come with longflow."""
    return list(_names())


@functools.cache
def table(name: str) -> Mapping[str, Any]:
    """A benchmark's YAML table as it stands in the file."""
    return cast(Mapping[str, Any], yaml.load((HERE / f"{name}.yaml").read_text(encoding="utf-8"), Loader=_LOADER))


_DECLARED: dict[str, Benchmark] = {}


def declare(benchmark: Benchmark) -> None:
    """Make a benchmark that a configuration declares known to `load`, in place of an earlier one of its name."""
    _DECLARED[benchmark.name] = benchmark


def load(name: str) -> Benchmark:
    """A benchmark by name. Raises UserError with the nearest name."""
    if name in _DECLARED:
        return _DECLARED[name]
    known = names()
    if name not in known:
        raise UserError(f"benchmark {name!r} is not known; {nearest(name, [*known, *_DECLARED])}")
    return _shipped(name)


@functools.cache
def _shipped(name: str) -> Benchmark:
    read = table(name)
    common = {"language", "category", "prompt", "max_new_tokens", "metric", "n"}
    tasks = {
        dataset: Task(
            benchmark=name,
            dataset=dataset,
            extra={k: v for k, v in entry.items() if k not in common},
            **{k: entry[k] for k in common},
        )
        for dataset, entry in read["datasets"].items()
    }
    return Benchmark(
        name=name,
        title=read["title"],
        lengths=tuple(map(str, read["lengths"])),
        any_length=bool(read.get("any_length", False)),
        tasks=tasks,
        table={k: v for k, v in read.items() if k != "datasets"},
        module=cast(Module, importlib.import_module(f"longflow.benchmarks.{name}")),
    )


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
