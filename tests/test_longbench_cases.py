"""Predictions that other people made with LongBench, LongBench-E and LongBench v2, held against their published scores.

The files are read from ../shared, of which nothing is copied here. The specs are made of the reference's own table of
tasks, so that our tables cannot hide an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longflow.jsonio import read_jsonl
from longflow.score import run, score_cell

SHARED = Path(__file__).resolve().parents[2] / "shared"
CASES = SHARED / "cases"
TASKS = SHARED / "reference" / "longbench_tasks.json"

pytestmark = pytest.mark.skipif(not (CASES.exists() and TASKS.exists()), reason=f"{SHARED} is absent")

DATASETS = (
    "narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa", "musique", "dureader",
    "gov_report", "qmsum", "multi_news", "vcsum", "trec", "triviaqa", "samsum", "lsht", "passage_count",
    "passage_retrieval_en", "passage_retrieval_zh", "lcc", "repobench-p",
)  # fmt: skip
DATASETS_E = (
    "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "gov_report", "multi_news", "trec", "triviaqa", "samsum",
    "passage_count", "passage_retrieval_en", "lcc", "repobench-p",
)  # fmt: skip
RUNS = ("mistral", "llama3.1-8b-instruct")
RUNS_V2 = ("oneshot", "cot", "quotes", "quotes_chunked")

V2_SIZES = {"easy": 192, "hard": 311, "short": 180, "medium": 215, "long": 108}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def spec(benchmark: str, dataset: str, **changes: Any) -> dict[str, Any]:
    """How LongBench's eval.py scores a data set, by the reference's table."""
    task = read(TASKS)["tasks"][dataset]
    bucketed = benchmark == "longbench_e"
    return {
        "benchmark": benchmark,
        "model": "theirs",
        "setting": "full",
        "dataset": dataset,
        "length": "full",
        "metric": task["metric"],
        "language": task["language"],
        "category": task["category"],
        "n_expected": task["n_samples_e_total" if bucketed else "n_samples"],
        "rouge_overflow": "reference",
        "code_similarity": "difflib",
        "answers": "best",
        "clean": "first_line" if task["first_line_only"] else None,
        "rounding": "numpy" if bucketed else "python",
        "groups": task["n_samples_e"] if bucketed else {},
        "rows": "all",
        "code": "",
        **changes,
    }


def spec_v2() -> dict[str, Any]:
    return {
        "benchmark": "longbench_v2",
        "model": "theirs",
        "setting": "full",
        "dataset": "longbench_v2",
        "length": "full",
        "metric": "choice",
        "language": "en",
        "category": "multiple choice",
        "n_expected": 503,
        "answers": "first",
        "groups": V2_SIZES,
        "code": "",
    }


def scored(path: Path, cell: dict[str, Any]) -> dict[str, Any]:
    return score_cell(read_jsonl(path), cell, str(path))[1]


# --- LongBench -------------------------------------------------------------------------------------------------------


def test_every_case_is_taken() -> None:
    for name in RUNS:
        assert sorted(read(CASES / "longbench" / name / "expected.json")) == sorted(DATASETS)
    assert sorted(read(CASES / "longbench_e/llama2-7b-chat-4k/expected.json")) == sorted(DATASETS_E)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("dataset", DATASETS)
def test_longbench(name: str, dataset: str) -> None:
    folder = CASES / "longbench" / name
    expected = read(folder / "expected.json")[dataset]
    summary = scored(folder / f"{dataset}.jsonl", spec("longbench", dataset))
    assert repr(summary["score"]) == repr(expected["difflib"])
    assert summary["rows"] == summary["n"] >= expected["records"]
    if expected["levenshtein"] is not None:
        other = scored(folder / f"{dataset}.jsonl", spec("longbench", dataset, code_similarity="levenshtein"))
        assert repr(other["score"]) == repr(expected["levenshtein"])


def test_a_line_that_was_appended_twice_can_be_left_out() -> None:
    path = CASES / "longbench/llama3.1-8b-instruct/2wikimqa.jsonl"
    every = scored(path, spec("longbench", "2wikimqa"))
    distinct = scored(path, spec("longbench", "2wikimqa", rows="distinct"))
    assert (every["rows"], every["n"], every["counts"]["duplicates"]) == (201, 201, 1)
    assert (distinct["rows"], distinct["n"], distinct["counts"]["duplicates"]) == (201, 200, 1)
    assert distinct["score"] == distinct["score_expected"]


# --- LongBench-E -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", DATASETS_E)
def test_longbench_e(dataset: str) -> None:
    folder = CASES / "longbench_e/llama2-7b-chat-4k"
    summary = scored(folder / f"{dataset}.jsonl", spec("longbench_e", dataset))
    scores = {name: group["score"] for name, group in summary["groups"].items()}
    assert repr(scores) == repr(read(folder / "expected.json")[dataset])
    for group in summary["groups"].values():
        assert group["n"] == group["n_expected"]
        assert group["score_expected"] == group["score"]


# --- LongBench v2 ----------------------------------------------------------------------------------------------------


def printed(part: dict[str, Any] | None) -> str:
    """A percentage as result.py prints it, of the unrounded sum."""
    return str(round(100 * part["total"] / part["n"], 1)) if part and part["n"] else "none"


@pytest.mark.parametrize("name", RUNS_V2)
def test_longbench_v2(name: str, tmp_path: Path) -> None:
    folder = CASES / "longbench_v2/predictions"
    header, *lines = (line.split("\t") for line in (folder / "expected_result.txt").read_text("utf-8").splitlines())
    expected = {line[0]: dict(zip(header[1:], line[1:], strict=True)) for line in lines}[name]
    summary = run(folder / f"{name}.jsonl", spec_v2(), tmp_path / "s.json", tmp_path / "r.jsonl")
    groups = summary["groups"]
    found = {"Overall": printed(summary), "Errors": str(summary["counts"]["failed"])}
    found |= {column: printed(groups.get(column.lower())) for column in header[2:-1]}
    assert found == expected
    assert list(groups)[:5] == list(V2_SIZES)
    assert {column: groups[column]["n_expected"] for column in V2_SIZES} == V2_SIZES
    assert summary["n"] + summary["counts"]["failed"] == summary["n_expected"] == 503
    assert summary["score_expected"] == round(100 * summary["total"] / 503, 2)
    assert sum(group["total"] for group in groups.values()) == 3 * summary["total"]  # difficulty, length and domain
