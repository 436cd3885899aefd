"""LongBench v2 (THU): 503 questions with four choices over long texts.

Records, prompts and result layout reproduce THUDM/LongBench at commit 2e00731f8d0bff23dc4325161044d0ed8af94c1e
(pred.py, result.py, prompts/). The data are the hub data set's `data.json`, or a local file.

The prompts belong to that repository. They are taken from it, at that commit and checked, when records are prepared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from longflow import benchmarks
from longflow.benchmarks import BenchmarkOptions, CellSummary, Task, files
from longflow.errors import UserError
from longflow.records import Record

TABLE = benchmarks.table("longbench_v2")
GROUPS: Mapping[str, Mapping[str, int]] = {name: entry["groups"] for name, entry in TABLE["datasets"].items()}

PLACEHOLDERS = {
    "$DOC$": "context",
    "$Q$": "question",
    "$C_A$": "choice_A",
    "$C_B$": "choice_B",
    "$C_C$": "choice_C",
    "$C_D$": "choice_D",
    "$COT$": "response_cot",
}
"""What a prompt file names and the field it stands for, in the order in which the reference replaces them."""

PLAIN = "0shot"
"""The prompt of the plain setting; the others are 0shot_cot, 0shot_cot_ans, 0shot_rag and 0shot_no_context."""

WRAPPER = 128
"""Tokens left for a chat wrapper."""

CLASSES = {
    "answer": ("A", "B", "C", "D"),
    "difficulty": ("easy", "hard"),
    "length": ("short", "medium", "long"),
}


class Options(BenchmarkOptions):
    """LongBench v2 in a run's configuration."""

    source: str = Field(
        "hub", description="Where the data come from: hub, a file (a JSON list or JSONL), or a folder with data.json."
    )
    revision: str | None = Field(
        None, pattern=r"^[\w.-]+$", description="Revision of the hub data set; default: the pinned one."
    )
    prompts_from: str = Field(
        "github", description="Where the prompts come from: github, or a folder with a clone of THUDM/LongBench."
    )
    substitution: Literal["safe", "reference"] = Field(
        "safe",
        description="Whether a text such as $Q$ inside a document is left alone, or replaced as the reference does.",
    )


def download(file: str, revision: str) -> dict[str, str]:
    """Where a file in {resources}/downloads/longbench_v2/{revision}/ comes from, as a download's specification."""
    return files.download(TABLE, file, revision)


def sources(task: Task, length: str, options: Options, resources: str) -> list[str]:
    """The file that holds the records, and the five prompt files unless the run brings a prompt of its own.

    Raises UserError naming every place looked at if a local folder lacks one.
    """
    downloads, key = f"{resources}/downloads/longbench_v2", "benchmarks.longbench_v2"
    if options.source == "hub":
        found = [f"{downloads}/{options.revision or TABLE['revision']}/data.json"]
    else:
        place = Path(options.source)
        places = [place / name for name in ("data.json", "data.jsonl", "longbench_v2.json", "longbench_v2.jsonl")]
        found = [str(place) if place.is_file() else files.find(places, f"{key}.source: {place} has no records")]
    if task.dataset not in options.prompts:
        found += [
            files.prompt_source(TABLE, file, options.prompts_from, downloads, f"{key}.prompts_from")
            for file in TABLE["prompt_files"]
        ]
    return found


def prepare(task: Task, length: str, options: Options, sources: Sequence[str]) -> Iterator[Record]:
    """The questions in the file's order, checked one by one, each with its templates.

    Templates are in `str.format` syntax over the record's fields: `templates` has all five by the reference's names,
    `template` is that of the plain setting. What a prompt shows is stripped, as the reference does while it fills
    prompts in. Raises UserError for a prompt file that is another, a row without a field or with a value that is not
    among the known, a question that stands twice, and a number of questions other than the benchmark's.
    """
    templates = {
        Path(file).stem: as_format(files.read_prompt_file(TABLE, file, path))
        for file, path in zip(TABLE["prompt_files"], sources[1:], strict=False)
    }
    own = {"template": templates[PLAIN], "templates": templates} if templates else {}
    shown = [name for name in PLACEHOLDERS.values() if name != "response_cot"]
    seen: set[str] = set()

    def make(index: int, row: files.Row, where: str) -> Record:
        files.require(row, dict.fromkeys(("_id", "domain", "sub_domain", *shown, *CLASSES), str), where)
        for key, known in CLASSES.items():
            if row[key] not in known:
                raise UserError(f"{where}: {key!r} should be one of {', '.join(known)}, found {row[key]!r}")
        if row["_id"] in seen:
            raise UserError(f"{where}: the question {row['_id']!r} stands there twice")
        seen.add(row["_id"])
        values = {name: row[name].strip() for name in shown}
        if options.substitution == "reference":
            values = chained(values)
        return Record(id=row["_id"], question_id=row["_id"], fields=files.fields_of(row, **values, **own))

    yield from files.read_records(sources[0], "data.json", task.n, f"LongBench v2 has {task.n}", make)


def as_format(text: str) -> str:
    """A prompt file's text as a template in `str.format` syntax.

    Filled in at one go, it is not fooled by a document that holds a text such as $Q$, which the reference's chain of
    replacements goes on to replace.
    """
    pattern = "|".join(map(re.escape, PLACEHOLDERS))
    parts = re.split(f"({pattern})", text)
    return "".join(
        f"{{{PLACEHOLDERS[part]}}}" if part in PLACEHOLDERS else part.replace("{", "{{").replace("}", "}}")
        for part in parts
    )


def chained(values: Mapping[str, str]) -> dict[str, str]:
    """Values as they stand in a prompt that was filled in by the reference's chain of replacements.

    Each value is subject to the replacements that come after its own.
    """
    chain = [(placeholder, name) for placeholder, name in PLACEHOLDERS.items() if name in values]
    result = {}
    for index, (_, name) in enumerate(chain):
        result[name] = values[name]
        for placeholder, other in chain[index + 1 :]:
            result[name] = result[name].replace(placeholder, values[other])
    return result


def groups_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The groups of a row: difficulty, length class and domain, as far as it tells them.

    As in the reference's result.py what is not easy is hard, and what is neither short nor medium is long.
    """
    difficulty, length, domain = (row.get(key) for key in ("difficulty", "length", "domain"))
    groups = []
    if isinstance(difficulty, str):
        groups.append("easy" if difficulty == "easy" else "hard")
    if isinstance(length, str):
        groups.append(length if length in ("short", "medium") else "long")
    if isinstance(domain, str):
        groups.append(f"domain: {domain}")
    return tuple(groups)


FIGURES = ("Overall", "Easy", "Hard", "Short", "Medium", "Long")
"""The columns of the reference's result.txt."""


def _accuracies(summary: CellSummary) -> list[float | None]:
    """Percentages with one decimal, made of the sums and not of percentages that were rounded already."""
    groups = summary.get("groups") or {}
    parts = [summary, *(groups.get(name.lower(), {"total": 0, "n": 0}) for name in FIGURES[1:])]
    return [round(100 * part["total"] / part["n"], 1) if part["n"] else None for part in parts]


def _name(summary: CellSummary) -> str:
    """A row's name in result.txt: the model, with the setting behind it as the reference names its files."""
    model, setting = summary["model"], summary.get("setting", "full")
    return str(model) if setting == "full" else f"{model}_{setting}"


def result_json(summaries: Sequence[CellSummary]) -> str:
    """The columns of the reference's result.txt as JSON, indented by 4. An empty group, its error, is null."""
    row = _accuracies(summaries[0]) if summaries else []
    return json.dumps(dict(zip(FIGURES, row, strict=False)), ensure_ascii=False, indent=4, allow_nan=False)


def result_csv(summaries: Sequence[CellSummary]) -> str:
    """result.txt as the reference's result.py writes it, with commas for its tabs; an empty group is an empty field."""
    return files.csv_table(("Model", *FIGURES), [(_name(s), *_accuracies(s)) for s in summaries])


def prompt_limit(window: int) -> int:
    """Tokens a raw prompt may have: the reference's 120,000, or what a smaller window leaves.

    The window has to hold the answer and a chat wrapper as well.
    """
    answer = int(TABLE["answer_tokens"][PLAIN])
    return min(int(TABLE["max_prompt_tokens"]), window - answer - WRAPPER)


_NAMED = ("easy", "hard", "short", "medium", "long")
MEANS: Mapping[str, Sequence[str]] = {
    **{name: [f"longbench_v2/full/{name}"] for name in GROUPS["longbench_v2"]},
    "compensated": ["longbench_v2/full/compensated"],
    "overall": ["longbench_v2/full"],
}
COLUMNS: Sequence[str] = (*_NAMED, "compensated", "overall")
