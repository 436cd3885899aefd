"""The demo benchmark: long contexts built from the invented sources in the project's `demo/` folder.

Anyone can run it at once, at any length: it needs no download, and no model can know its answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import Field

from longflow.benchmarks import BenchmarkOptions, Task, length_units
from longflow.benchmarks.lveval import prompt_limit, result_csv, result_json
from longflow.builder import Level, needle_records, passage_records, read_distractors, read_questions
from longflow.errors import UserError
from longflow.records import Record

__all__ = ["Options", "prepare", "prompt_limit", "result_csv", "result_json", "sources"]

PROJECT = Path(__file__).resolve().parents[2]


class Options(BenchmarkOptions):
    """What a run may choose about the demo."""

    records: int | None = Field(None, ge=1, description="Records in each cell; the table's number if not given.")
    seed: int = Field(42, description="Decides which distractors stand where; the same seed gives the same bytes.")
    documents: str = Field("demo", description="Folder of the sources; a relative one starts at the project's folder.")


def sources(task: Task, length: str, options: Options, resources: str) -> list[str]:
    """The two files that a cell's records are built from: its questions, and the distractors of its language.

    Raises UserError if one is missing.
    """
    folder = PROJECT / options.documents
    files = [folder / f"{task.dataset}.yaml", folder / f"distractors_{task.language}.yaml"]
    for file in files:
        if not file.is_file():
            raise UserError(f"benchmarks: demo: documents: {options.documents!r} has no file {file.name} ({file})")
    return [str(file) for file in files]


def prepare(task: Task, length: str, options: Options, sources: Sequence[str]) -> Iterator[Record]:
    """Yield the records of one data set at one level; `sources` are the files named by the function of that name.

    A level's number counts words; Chinese contexts have twice that number of characters. Raises UserError for
    sources that are malformed, too few or too short for what was asked.
    """
    questions, distractors = read_questions(sources[0]), read_distractors(sources[1])
    for file, language in ((sources[0], questions.language), (sources[1], distractors.language)):
        if language != task.language:
            raise UserError(f"{file}: language: {task.language!r} was expected, found {language!r}")
    words = length_units(length)
    if words == 0:
        raise UserError(f"demo: length {length!r} is not a level; levels are numbers of words such as 500 or 16k")
    level = Level(length, words * (2 if task.language == "zh" else 1))
    build = needle_records if task.extra["layout"] == "needle" else passage_records
    yield from build(questions, distractors, task.dataset, level, options.seed, options.records or task.n)
