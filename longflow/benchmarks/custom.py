"""Benchmarks that a configuration declares: JSONL files in LV-Eval's or LongBench's format, and no Python.

An entry under `benchmarks:` that has `datasets_from` is one. Its table is made of the entry and of the files: how many
records they hold, and which fields the first one has. There are length levels if the paths have {length} in them.
A data set may come from the hub instead, read through the `datasets` library when its records are prepared; until then
only the entry is known of it, so that it says itself how many records to expect.
"""

from __future__ import annotations

import functools
import json
import os
import re
import string
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from longflow import benchmarks
from longflow.benchmarks import (
    LONGEST_PROMPT,
    Benchmark,
    BenchmarkOptions,
    CellSummary,
    Module,
    Task,
    files,
    hub_rows,
    longbench,
    lveval,
)
from longflow.benchmarks.lveval import prompt_limit
from longflow.errors import UserError, nearest
from longflow.jsonio import read_jsonl
from longflow.metrics import METRICS, metric
from longflow.paths import PathText
from longflow.prompts import template_error
from longflow.records import Record, question_id

__all__ = ["Options", "prepare", "prompt_limit", "register", "result_csv", "result_json", "schema", "sources"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LEVEL = re.compile(r"[1-9]\d*k?")
ONLY_LEVEL = "full"
"""The level of a benchmark without levels."""


class DataSet(BaseModel):
    """A data set of one's own."""

    model_config = ConfigDict(extra="forbid", strict=True)

    path: PathText | None = Field(
        None, description="The JSONL file; with {length} in it, a file for each of the lengths."
    )
    source: PathText | None = Field(
        None, min_length=1, description="In place of path: a data set on the hub (org/name), or a folder with one."
    )
    subset: str | None = Field(None, min_length=1, description="With source: the data set's configuration, by name.")
    split: str = Field("test", min_length=1, description="With source: the split.")
    revision: str | None = Field(
        None, pattern=r"^[\w./-]+$", description="With source: a commit of the hub's repository; default: main."
    )
    records: int | dict[str, int] | None = Field(
        None, description="With source: how many records to expect, or how many at each of the lengths."
    )
    fields: dict[str, str] = Field(
        {}, description="With source: the columns that fields are taken from, such as {input: question}."
    )
    prompt: str = Field(min_length=1, description="The prompt template, over the fields of a record.")
    metric: str = Field(description="One of longflow's metrics, such as qa_f1_score.")
    max_new_tokens: int = Field(ge=1, description="The length of an answer in tokens.")
    title: str | None = Field(None, description="A name for people.")
    language: str = Field("en", pattern=r"^\w+$", description="The language of the records: en, zh, code.")
    category: str = Field("QA", min_length=1, description="The kind of task, by which figures group data sets.")
    answers: Literal["first", "best"] = Field(
        "best", description="The score of the first answer (LV-Eval) or of the best one (LongBench)."
    )
    clean: Literal["first_line"] | None = Field(None, description="first_line: only an answer's first line is scored.")
    wrap: bool = Field(True, description="false: the prompt is sent without a chat wrapper.")

    @property
    def places(self) -> tuple[str, ...]:
        """What may have {length} in it."""
        return (self.path,) if self.path else tuple(filter(None, (self.source, self.subset, self.split)))

    def file(self, length: str) -> str:
        """The file of a length level."""
        return os.path.expanduser(self.path or "").replace("{length}", length)

    def of_source(self, length: str) -> tuple[str, str | None, str, str | None]:
        """Source, subset, split and revision of a length level."""

        def at(text: str) -> str:
            return text.replace("{length}", length)

        return at(self.source or ""), self.subset and at(self.subset), at(self.split), self.revision


class Options(BenchmarkOptions):
    """A benchmark that is declared in a run's configuration."""

    datasets_from: dict[str, DataSet] = Field(min_length=1, description="Data sets of one's own, by name.")
    title: str | None = Field(None, description="A name for people.")

    def of_records(self, dataset: str) -> dict[str, Any]:
        """What of the options may change the records of a data set: where they are, and what is demanded of them."""
        entry = self.datasets_from[dataset]
        classes = {"classes": metric(entry.metric).needs_classes}
        if entry.path:
            return {"path": entry.path, **classes}
        return {**entry.model_dump(include=set(_SOURCE_KEYS)), **classes}


_SOURCE_KEYS = ("source", "subset", "split", "revision", "records", "fields")
"""Keys of a data set that is not a JSONL file."""


def register(entries: Mapping[str, Any], selected: Collection[str]) -> list[str]:
    """Make the benchmarks that a configuration declares known, and return their names.

    Args:
        entries: the configuration's `benchmarks:`; those that come with longflow are passed over.
        selected: the benchmarks to run. The files of others are not looked at.

    Raises UserError for the first thing that is wrong with an entry or, of a benchmark to run, its files.
    """
    shipped = benchmarks.names()
    declared = []
    for name, entry in entries.items():
        if name not in shipped and isinstance(entry, Mapping) and "datasets_from" in entry:
            benchmarks.declare(_benchmark(name, entry, name in selected))
            declared.append(name)
    return declared


def _benchmark(name: str, entry: Mapping[str, Any], selected: bool) -> Benchmark:
    key = f"benchmarks.{name}"
    if not NAME.fullmatch(name):
        raise UserError(
            f"benchmarks: {name!r} is no name for a benchmark; use letters, digits, '.', '_' and '-' (it is a folder)"
        )
    options = _options(entry, key)
    lengths = _lengths(options, key)
    tasks = {}
    for dataset, given in options.datasets_from.items():
        needed = selected and (options.datasets == "all" or dataset in options.datasets)
        tasks[dataset] = _task(name, dataset, given, options, lengths if needed else ())
    table = {"title": options.title or name, "lengths": list(lengths)}
    module = cast(Module, sys.modules[__name__])
    return Benchmark(name, str(table["title"]), lengths, any_length=False, tasks=tasks, table=table, module=module)


def _options(entry: Mapping[str, Any], key: str) -> Options:
    """The entry, checked. Raises UserError for its first fault, naming the key however deep it stands."""
    try:
        return Options.model_validate(dict(entry))
    except ValidationError as error:
        # A misspelt key first: it explains the missing one.
        fault = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    # Within a data set three names lead to the key; elsewhere pydantic's further ones are of no use to anybody.
    place = [str(part) for part in fault["loc"][: 3 if fault["loc"][0] == "datasets_from" else 1]]
    model: type[BaseModel] = DataSet if len(place) == 3 else Options
    if fault["type"] == "extra_forbidden":
        where = ".".join([key, *place[:-1]])
        raise UserError(f"{where}: unknown key {place[-1]!r}; {nearest(place[-1], model.model_fields)}")
    field = model.model_fields.get(place[-1])
    meaning = f" ({field.description})" if field and field.description else ""
    where = ".".join([key, *place])
    if fault["type"] == "missing":
        raise UserError(f"{where}: missing{meaning}")
    raise UserError(f"{where}: {fault['input']!r}: {fault['msg']}{meaning}")


def _lengths(options: Options, key: str) -> tuple[str, ...]:
    """The levels of a benchmark, short ones first. Raises UserError where paths and lengths do not go together."""
    for dataset, given in options.datasets_from.items():
        _check_place(given, f"{key}.datasets_from.{dataset}")
    with_levels = [any("{length}" in place for place in given.places) for given in options.datasets_from.values()]
    if not any(with_levels):
        if options.lengths not in ("all", [ONLY_LEVEL]):
            raise UserError(f"{key}.lengths: no path has {{length}} in it, so there are no levels; leave lengths out")
        return (ONLY_LEVEL,)
    if not all(with_levels):
        without = list(options.datasets_from)[with_levels.index(False)]
        raise UserError(
            f"{key}.datasets_from.{without}.{'path' if options.datasets_from[without].path else 'source'}: has no "
            "{length}, as the paths of other data sets have; data sets "
            "without levels make a benchmark of their own"
        )
    if options.lengths == "all" or not options.lengths:
        raise UserError(f"{key}.lengths: the paths have {{length}} in them; name the levels, such as [8k, 32k]")
    for length in options.lengths:
        if not LEVEL.fullmatch(length):
            raise UserError(f"{key}.lengths: {length!r} is no level; levels are numbers such as 500 or 32k")
    return tuple(sorted(dict.fromkeys(options.lengths), key=benchmarks.length_units))


def _check_place(given: DataSet, key: str) -> None:
    """See to it that a data set says where it is, and says it once. Raises UserError."""
    if given.source is None:
        stray = [name for name in _SOURCE_KEYS if name in given.model_fields_set and name != "source"]
        if stray:
            raise UserError(f"{key}.{stray[0]}: goes with source, for a data set that is read through datasets")
        if not given.path:
            raise UserError(f"{key}.path: missing (the JSONL file; or source: org/name, a data set on the hub)")
        path = given.path.replace("{length}", "")
        if "{" in path or "}" in path or not path.endswith(".jsonl"):
            raise UserError(f"{key}.path: {given.path!r}: a .jsonl file was expected, with no braces but {{length}}")
        return
    if given.path is not None:
        raise UserError(f"{key}: has a path and a source; one of them says where the records are")
    if given.records is None:
        raise UserError(f"{key}.records: missing (how many records the data set has, which is checked when it is read)")
    for number in given.records.values() if isinstance(given.records, dict) else [given.records]:
        if number < 1:
            raise UserError(f"{key}.records: {number}: a number above 0 was expected")


def _task(benchmark: str, dataset: str, given: DataSet, options: Options, lengths: Sequence[str]) -> Task:
    """The task of a data set, its files looked at for these lengths. Raises UserError."""
    key = f"benchmarks.{benchmark}.datasets_from.{dataset}"
    if not NAME.fullmatch(dataset):
        raise UserError(
            f"benchmarks.{benchmark}.datasets_from: {dataset!r} is no name for a data set; use letters, digits, '.', "
            "'_' and '-' (it is a folder)"
        )
    fitting = [name for name, known in METRICS.items() if known.measure_row is None]
    if given.metric not in fitting:
        raise UserError(
            f"{key}.metric: {given.metric!r} is no metric for such records; {nearest(given.metric, fitting)}"
        )
    if (size := len(given.prompt.encode("utf-8"))) > LONGEST_PROMPT:
        raise UserError(
            f"{key}.prompt: {size:,} bytes of template; at most {LONGEST_PROMPT:,} (long material belongs into the "
            "records' context)"
        )
    if lengths and given.path:
        fields = frozenset.intersection(*(_fields(given, length, f"{key}.path") for length in lengths))
    else:  # what is not run is not looked at, and the hub not asked before records are prepared
        fields = frozenset().union(*map(_named, (given.prompt, options.prompts.get(dataset, ""))))
    if wrong := template_error(given.prompt, set(fields)):
        raise UserError(f"{key}.prompt: {wrong}")
    records = {length: _expected(given, length, key) for length in lengths}
    return Task(
        benchmark=benchmark,
        dataset=dataset,
        language=given.language,
        category=given.category,
        prompt=given.prompt,
        max_new_tokens=given.max_new_tokens,
        metric=given.metric,
        n=max(records.values(), default=0),
        extra={
            "title": given.title,
            "answers": given.answers,
            "clean": given.clean,
            "wrap": given.wrap,
            "records": records,
            "fields": fields,
        },
    )


def _named(template: str) -> frozenset[str]:
    try:
        return frozenset(name for _, name, _, _ in string.Formatter().parse(template) if name is not None)
    except ValueError:  # not a template, which the check of templates says
        return frozenset()


def _fields(given: DataSet, length: str, key: str) -> frozenset[str]:
    """The fields that the first record of a file has. Raises UserError if it is missing, empty, or not as it should."""
    path = given.file(length)
    if not Path(path).is_file():
        raise UserError(f"{key}: {path} is no file")
    first = next(read_jsonl(path), None)
    if first is None:
        raise UserError(f"{key}: {path} holds no record")
    _check(first, given.metric, f"{path}, record 1")
    return frozenset(files.fields_of(first))


def _expected(given: DataSet, length: str, key: str) -> int:
    """How many records a data set has at a length: its file's lines, or what the entry says. Raises UserError."""
    if given.path:
        return _count(given.file(length), f"{key}.path")
    if not isinstance(given.records, dict):
        return int(given.records or 0)
    if length not in given.records:
        raise UserError(f"{key}.records: says nothing of {length}; name each of the lengths, or one number for all")
    return given.records[length]


def _count(path: str, key: str) -> int:
    """How many records a file has. Raises UserError if it cannot be read."""
    try:
        state = os.stat(path)
        return _lines(path, state.st_size, state.st_mtime_ns)
    except OSError as error:
        raise UserError(f"{key}: {path} cannot be read ({error.strerror})") from error


@functools.lru_cache(maxsize=4096)
def _lines(path: str, size: int, mtime_ns: int) -> int:
    """Lines that are not blank; size and time stamp are there for the cache, which a changed file must not meet."""
    with open(path, "rb") as stream:
        return sum(1 for line in stream if line.strip())


def _check(row: files.Row, metric_name: str, where: str) -> None:
    """See to it that a row is a record in LV-Eval's or LongBench's format. Raises UserError."""
    files.require(row, {"input": str, "context": str}, where)
    files.require_texts(row, "answers", where)
    if not row["answers"]:
        raise UserError(f"{where}: 'answers' is empty, so that no answer could be right; give at least one")
    if not isinstance(row.get("answer_keywords"), str | None):
        raise UserError(f"{where}: 'answer_keywords' should be text, found {type(row['answer_keywords']).__name__}")
    if metric(metric_name).needs_classes and row.get("all_classes") is None:
        raise UserError(f"{where}: {metric_name} needs 'all_classes', the list of all classes; it is missing")
    if row.get("all_classes") is not None:
        files.require_texts(row, "all_classes", where)


def sources(task: Task, length: str, options: Options, resources: str) -> list[str]:
    """The file that holds the records, or the files of a folder with a data set. One on the hub has none here."""
    given = options.datasets_from[task.dataset]
    return [given.file(length)] if given.path else hub_rows.files_of(given.of_source(length)[0])


def prepare(task: Task, length: str, options: Options, sources: Sequence[str]) -> Iterator[Record]:
    """The records of one data set at one length, in the file's order, checked one by one; they keep their fields.

    A question is named by its `_id`, as in LongBench, or by what it asks, as LV-Eval's. Raises UserError for a row that
    is not in the format, and another number of rows than there was when the configuration was read, or than it says.
    """
    given, n = options.datasets_from[task.dataset], task.records(length)

    def make(index: int, row: files.Row, where: str) -> Record:
        _check(row, task.metric, where)
        named = row.get("_id")
        name = named if isinstance(named, str) and named else question_id(task.dataset, row["input"], row["answers"])
        return Record(id=f"{task.dataset}_{length}_{index:04d}", question_id=name, fields=files.fields_of(row))

    if given.path:
        yield from files.read_records(sources[0], "", n, f"there were {n} when the configuration was read", make)
        return
    place, count = given.of_source(length), 0
    named = f"data set {place[0]}, split {place[2]}"
    prompt = options.prompts.get(task.dataset, task.prompt)
    for count, row in enumerate(hub_rows.read(*place), 1):
        where = f"{named}, record {count}"
        record = make(count - 1, hub_rows.renamed(row, given.fields, where), where)
        if count == 1 and (wrong := template_error(str(prompt), set(record.fields))):
            raise UserError(f"benchmarks.{task.benchmark}: the prompt of {task.dataset} {wrong}")
        yield record
    if count != n:
        raise UserError(
            f"{named}: it has {count} records, but benchmarks.{task.benchmark}.datasets_from.{task.dataset}.records "
            f"says {n}"
        )


def _without_levels(summaries: Sequence[CellSummary]) -> bool:
    return all(summary["length"] == ONLY_LEVEL for summary in summaries)


def _rows(summaries: Sequence[CellSummary]) -> list[tuple[str, float]]:
    """Data set and score of the cells that have a score, in the order of the configuration."""
    if not summaries:
        return []
    table = {"datasets": benchmarks.load(str(summaries[0]["benchmark"])).tasks}
    return [(str(s["dataset"]), s["score"]) for s in longbench.ordered(summaries, table) if s["score"] is not None]


def result_json(summaries: Sequence[CellSummary]) -> str:
    """result.json in LV-Eval's layout, or in LongBench's for a benchmark without levels."""
    if not _without_levels(summaries):
        return lveval.result_json(summaries)
    return json.dumps(dict(_rows(summaries)), ensure_ascii=False, indent=4, allow_nan=False)


def result_csv(summaries: Sequence[CellSummary]) -> str:
    """result.csv in LV-Eval's layout, or in LongBench's for a benchmark without levels."""
    if not _without_levels(summaries):
        return lveval.result_csv(summaries)
    return files.csv_table(("dataset_name", "score"), _rows(summaries))


def schema() -> dict[str, Any]:
    """The JSON schema of an entry, in one piece, for editors."""
    found = Options.model_json_schema()
    parts = found.pop("$defs")
    found["properties"]["datasets_from"]["additionalProperties"] = parts["DataSet"]
    return found
