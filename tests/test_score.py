"""Scoring cells: the reference's numbers for whole files, and what becomes of odd rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longflow.errors import UserError
from longflow.records import Prediction, Record
from longflow.score import run, score_cell

VECTORS = json.loads((Path(__file__).parent / "data" / "golden_vectors.json").read_text(encoding="utf-8"))
LVEVAL = VECTORS["lveval_end_to_end"]
CASES = Path(__file__).resolve().parents[2] / "shared" / "cases" / "lveval"

# dataset -> metric, as LV-Eval's config.py has it
METRIC = {
    "hotpotwikiqa_mixup": "qa_f1_score_with_gold_ans",
    "loogle_SD_mixup": "qa_f1_score_with_gold_ans",
    "loogle_CR_mixup": "qa_f1_score_with_gold_ans",
    "loogle_MIR_mixup": "qa_f1_score_with_gold_ans",
    "multifieldqa_en_mixup": "qa_f1_score_with_gold_ans",
    "multifieldqa_zh_mixup": "qa_f1_zh_score_with_gold_ans",
    "factrecall_en": "qa_f1_score",
    "factrecall_zh": "qa_f1_zh_score",
    "cmrc_mixup": "qa_f1_zh_score_with_gold_ans",
    "lic_mixup": "qa_f1_zh_score_with_gold_ans",
    "dureader_mixup": "rouge_zh_score_blacklist",
}


def cell(metric: str = "qa_f1_score", n_expected: int = 2, **changes: Any) -> dict[str, Any]:
    return {
        "benchmark": "lveval",
        "model": "m",
        "setting": "full",
        "dataset": "d",
        "length": "16k",
        "metric": metric,
        "language": "en",
        "category": "single-hop QA",
        "n_expected": n_expected,
        "rouge_overflow": "reference",
        "answers": "first",
        "code": "",
        **changes,
    }


def row(pred: Any, *answers: Any, **more: Any) -> dict[str, Any]:
    return {
        "pred": pred,
        "answers": list(answers),
        "gold_ans": None,
        "input": "q",
        "all_classes": None,
        "length": 1,
        **more,
    }


# --- the reference's numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LVEVAL["files"])
def test_reference_run(name: str) -> None:
    subset = name.removesuffix(".jsonl")
    dataset, length = subset.rsplit("_", 1)
    rows = LVEVAL["files"][name]
    _, summary = score_cell(rows, cell(METRIC[dataset], len(rows), dataset=dataset, length=length))
    assert repr(summary["score"]) == repr(json.loads(LVEVAL["result_json"])[subset])
    assert summary["score_expected"] == summary["score"]


@pytest.mark.parametrize("variant", [f"{number:02}" for number in range(12)])
def test_published_run(variant: str, tmp_path: Path) -> None:
    if not CASES.exists():
        pytest.skip(f"{CASES} is absent")
    expected = json.loads((CASES / "variants" / "expected.json").read_text(encoding="utf-8"))[variant]
    spec = cell("qa_f1_score_with_gold_ans", 124, dataset="hotpotwikiqa_mixup")
    summary = run(
        CASES / "variants" / variant / "hotpotwikiqa_mixup_16k.jsonl", spec, tmp_path / "s.json", tmp_path / "r.jsonl"
    )
    assert repr(summary["score"]) == repr(expected)
    assert (summary["n"], summary["n_expected"]) == (83, 124)
    assert summary["score_expected"] == round(100 * summary["total"] / 124, 2)
    assert summary["answer_keywords"] == {"present": 0, "absent": 83}


# --- rows ------------------------------------------------------------------------------------------------------------


def test_only_the_first_answer_counts_unless_told_otherwise() -> None:
    rows = [row("beta", "alpha", "beta")]
    assert score_cell(rows, cell())[1]["score"] == 0.0
    assert score_cell(rows, cell(answers="best"))[1]["score"] == 100.0


def test_no_answers_score_zero() -> None:
    records, summary = score_cell([row("x"), row("x", "x")], cell())
    assert [record["score"] for record in records] == [0.0, 1.0]
    assert summary["score"] == 50.0


def test_record_lines_are_unrounded_and_named() -> None:
    (line,), _ = score_cell([row("x y z", "x", id="r1", question_id="q1")], cell())
    assert line == {"id": "r1", "question_id": "q1", "score": 0.5, "plain": 0.5, "gated": False, "flags": []}
    lines, _ = score_cell([row("x", "x"), row("y", "y"), row("z", "x")], cell())
    assert [line["id"] for line in lines] == ["0", "1", "2"]
    # rows without names that ask the same thing share a question id
    assert lines[0]["question_id"] == lines[2]["question_id"] != lines[1]["question_id"]


def test_rows_of_our_own_predictions_are_read() -> None:
    record = Record("r", "q", {"input": "q", "answers": ["x"], "answer_keywords": "x"})
    predictions = [
        Prediction("x", record, sent_tokens=10, finish_reason="stop"),
        Prediction("x", record, sent_tokens=21, kept_head=5, kept_tail=5, finish_reason="length"),
        Prediction(" \n", record, sent_tokens=30, kept_head=0, kept_tail=0),
        Prediction("", record, error="out of memory"),
    ]
    spec = cell("qa_f1_score_with_gold_ans", 4)
    records, summary = score_cell([prediction.to_row() for prediction in predictions], spec)
    assert [record["flags"] for record in records] == [[], [], [], ["failed"]]
    assert summary["score"] == 50.0
    assert summary["n"] == 4
    assert summary["counts"] == {
        "truncated": 2,
        "empty": 1,
        "failed": 1,
        "gated": 0,
        "keywords_empty": 0,
        "rouge_overflow": 0,
        "truth_unreadable": 0,
        "unparsed": 0,
        "ran_out": 1,
        "reasoning_open": 0,
        "ungrouped": 0,
        "duplicates": 0,
    }
    assert summary["sent_tokens"] == {"mean": round(61 / 3, 2), "max": 30}
    assert summary["answer_keywords"] == {"present": 4, "absent": 0}


def test_rows_without_pred_fail_and_are_not_scored() -> None:
    rows = [row("x", "x"), {"_id": "7", "agent": "a", "error": "timeout"}, {"pred": None, "error": "e"}, row(None, "x")]
    records, summary = score_cell(rows, cell(n_expected=4))
    assert summary["score"] == 100.0
    assert summary["score_expected"] == 25.0
    assert (summary["n"], summary["counts"]["failed"]) == (1, 3)
    assert [record["id"] for record in records] == ["0", "7", "2", "3"]
    assert (records[1]["score"], records[1]["plain"], records[1]["flags"]) == (None, None, ["failed"])


def test_gate_and_plain_stand_side_by_side() -> None:
    rows = [
        row("alpha beta", "alpha gamma", gold_ans="gamma"),
        row("hello", "hello", gold_ans="the"),
        row("x", "x", gold_ans="x"),
        row("x", "x"),
    ]
    records, summary = score_cell(rows, cell("qa_f1_score_with_gold_ans", 4))
    assert [(r["score"], r["plain"], r["gated"]) for r in records] == [
        (0.0, 0.5, True),
        (1.0, 1.0, False),
        (1.0, 1.0, False),
        (1.0, 1.0, False),
    ]
    assert records[1]["flags"] == ["keywords_empty"]
    assert (summary["score"], summary["plain"]) == (75.0, 87.5)
    assert (summary["total"], summary["plain_total"]) == (3.0, 3.5)
    assert (summary["counts"]["gated"], summary["counts"]["keywords_empty"]) == (1, 1)
    assert summary["answer_keywords"] == {"present": 3, "absent": 1}


def test_rouge_overflow_is_counted_and_can_be_exact() -> None:
    text = " ".join(map(str, range(1200)))
    rows = [row(text, text)]
    for choice, score in (("reference", 0.0), ("exact", 100.0)):
        records, summary = score_cell(rows, cell("rouge_score", 1, rouge_overflow=choice))
        assert (summary["score"], summary["counts"]["rouge_overflow"]) == (score, 1)
        assert records[0]["flags"] == ["rouge_overflow"]


def test_denominators() -> None:
    rows = [row("x", "x", input=f"q{i}") for i in range(3)]
    assert score_cell(rows, cell(n_expected=4))[1]["score_expected"] == 75.0
    assert score_cell(rows, cell(n_expected=2))[1]["score_expected"] == 100.0
    # Appended to twice, a file has no more answers than before.
    lines, summary = score_cell(rows + rows, cell(n_expected=4))
    assert (summary["n"], summary["score"], summary["score_expected"]) == (6, 100.0, 75.0)
    assert [line.get("again", False) for line in lines] == [False] * 3 + [True] * 3
    # Of no more rows than expected, equal ones may be answers to two records.
    assert score_cell([rows[0]] * 2, cell(n_expected=4))[1]["score_expected"] == 50.0
    empty = score_cell([], cell(n_expected=3))[1]
    assert (empty["score"], empty["plain"], empty["score_expected"], empty["n"]) == (None, None, 0.0, 0)
    assert score_cell([], cell(n_expected=0))[1]["score_expected"] is None


def test_sum_is_taken_in_file_order() -> None:
    # one shared word of n against one: F1 = 2p / (p + 1) with p = 1/n; a sum in another order has other last bits
    sizes = [3, 6, 7, 11, 13] * 9
    total = 0.0
    for n in sizes:
        total += (2 * (1 / n) * 1.0) / (1 / n + 1.0)
    rows = [row(" ".join("w" * (i + 1) for i in range(n)), "w") for n in sizes]
    summary = score_cell(rows, cell())[1]
    assert repr(summary["total"]) == repr(total)
    assert repr(summary["score"]) == repr(round(100 * total / len(sizes), 2))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (row(["x"], "x"), ["'pred'", "a string or null", "a list"]),
        ({**row("x"), "answers": "x"}, ["'answers'", "a list of strings", "a string"]),
        (row("x", 3), ["'answers'", "a list of strings", "a number"]),
        (row("x", "x", gold_ans=["x"]), ["'gold_ans'", "a string or null", "a list"]),
        ({"pred": "x"}, ["'answers'", "missing"]),
    ],
)
def test_bad_rows_are_named(bad: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        score_cell([row("x", "x"), bad], cell(), where="d/16k.jsonl")
    message = str(caught.value)
    assert message.startswith("d/16k.jsonl, row 2: ")
    assert all(word in message for word in words)


def test_unknown_metric_is_told_even_for_an_empty_file() -> None:
    with pytest.raises(UserError, match="qa_f1_score"):
        score_cell([], cell("qa_f1_scores"))


# --- LongBench -------------------------------------------------------------------------------------------------------

# data set -> metric, as LongBench's eval.py has it
LONGBENCH = {
    "lcc": "code_sim_score",
    "passage_count": "count_score",
    "qasper": "qa_f1_score",
    "trec": "classification_score",
    "triviaqa": "qa_f1_score",
    "vcsum": "rouge_zh_score",
    "hotpotqa": "qa_f1_score",
}
BUCKETS = {"0-4k": 0, "4-8k": 0, "8k+": 0}


def longbench(dataset: str, **changes: Any) -> dict[str, Any]:
    clean = "first_line" if dataset in ("trec", "triviaqa", "samsum", "lsht") else None
    named = {"benchmark": "longbench", "dataset": dataset, "length": "full", "answers": "best", "clean": clean}
    return cell(**{"metric": LONGBENCH[dataset], **named, **changes})


def longbench_e(**changes: Any) -> dict[str, Any]:
    bucketed = {"benchmark": "longbench_e", "rounding": "numpy", "groups": BUCKETS}
    return longbench("hotpotqa", **{**bucketed, **changes})


def test_longbench_reference_run() -> None:
    files, expected = (VECTORS["longbench_end_to_end"][key] for key in ("pred", "result_json_unordered"))
    scores = {
        name.removesuffix(".jsonl"): score_cell(rows, longbench(name.removesuffix(".jsonl")))[1]["score"]
        for name, rows in files.items()
    }
    assert repr(sorted(scores.items())) == repr(sorted(expected.items()))


def test_longbench_e_reference_run() -> None:
    files, expected = (VECTORS["longbench_end_to_end"][key] for key in ("pred_e", "result_e_json_text"))
    scores = {}
    for name, rows in files.items():
        dataset = name.removesuffix(".jsonl")
        summary = score_cell(rows, {**longbench_e(), "dataset": dataset})[1]
        scores[dataset] = {bucket: group["score"] for bucket, group in summary["groups"].items()}
    # The reference writes the mean of an empty bucket as a bare NaN; ours is null.
    assert json.dumps(scores, indent=4) == expected.replace("NaN", "null")


def test_longbench_v2_reference_run() -> None:
    results, text = (VECTORS["longbench_v2_end_to_end"][key] for key in ("results", "result_txt"))
    header, *lines = (line.split("\t") for line in text.split("\n"))
    for line in lines:
        rows = results[f"{line[0]}.jsonl"]
        summary = score_cell(rows, v2(n_expected=len(rows)))[1]
        parts = [summary, *(summary["groups"][column.lower()] for column in header[2:])]
        assert [str(round(100 * part["total"] / part["n"], 1)) for part in parts] == line[1:]


def test_only_the_first_line_counts_where_the_benchmark_says_so() -> None:
    rows = [row("\n\nParis\nQuestion: London", "Paris")]
    assert score_cell(rows, longbench("triviaqa"))[1]["score"] == 100.0
    assert score_cell(rows, longbench("qasper"))[1]["score"] == 50.0
    # Only line ends are passed over: a line with a space in it is the first.
    assert score_cell([row("\n \nParis", "Paris")], longbench("triviaqa"))[1]["score"] == 0.0


def test_a_file_is_classified_by_the_classes_of_its_last_row() -> None:
    rows = [
        row("City Country", "City", all_classes=["City", "Country"]),
        row("City", "City", all_classes=["City"]),
    ]
    spec = longbench("trec")
    assert score_cell(rows, spec)[1]["total"] == 2.0
    assert score_cell(rows[::-1], spec)[1]["total"] == 1.5
    # Rows that failed may have none; the reference ends with an error there.
    assert score_cell([*rows, {"error": "timeout"}, row("City", "City")], spec)[1]["total"] == 3.0


def test_classification_without_classes_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^d\.jsonl, row 1: 'all_classes' is missing"):
        score_cell([row("City", "City")], longbench("trec"), "d.jsonl")
    assert score_cell([], longbench("trec"))[1]["score"] is None
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(row("City", "City", all_classes=["City"])) + "\n", encoding="utf-8")
    assert run(path, longbench("trec"), tmp_path / "s.json", tmp_path / "r.jsonl")["score"] == 100.0


def test_code_similarity_is_a_choice_of_the_run() -> None:
    rows = [row("tide", "diet")]
    assert score_cell(rows, longbench("lcc"))[1]["score"] == 25.0
    assert score_cell(rows, longbench("lcc", code_similarity="levenshtein"))[1]["score"] == 50.0


def test_a_truth_without_a_paragraph_is_counted() -> None:
    spec = longbench("qasper", metric="retrieval_score")
    records, summary = score_cell([row("Paragraph 3", "Paragraph 3"), row("3", "three")], spec)
    assert (summary["score"], summary["counts"]["truth_unreadable"]) == (50.0, 1)
    assert records[1]["flags"] == ["truth_unreadable"]


def test_numpy_rounds_otherwise_than_python() -> None:
    # 0.5 of 2.675 % each: 2.675 is below two and a half hundredths as a float, which Python sees and numpy does not
    rows = [row("1", "1")] * 107 + [row("2", "1")] * 3893
    assert 100 * (107 / 4000) == 2.675
    python, numpy = (
        score_cell(rows, longbench("passage_count", rounding=rounding))[1]["score"] for rounding in ("python", "numpy")
    )
    assert (python, numpy) == (2.67, 2.68)


def test_groups_have_their_own_figures() -> None:
    lengths = [100, 3999, 4000, 7999, 8000, 8000.5, None]
    rows = [{**row("x" if n != 3999 else "y", "x"), "length": n} for n in lengths]
    rows += [
        {"error": "timeout", "length": 4000},
        {key: value for key, value in row("x", "x").items() if key != "length"},
    ]
    spec = longbench_e(groups={"8k+": 2, "4-8k": 4, "0-4k": 1}, n_expected=10)
    records, summary = score_cell(rows, spec)
    assert list(summary["groups"]) == ["8k+", "4-8k", "0-4k"]
    assert summary["groups"] == {
        "8k+": {"score": 100.0, "score_expected": 100.0, "total": 2.0, "n": 2, "n_expected": 2},
        "4-8k": {"score": 100.0, "score_expected": 50.0, "total": 2.0, "n": 2, "n_expected": 4},
        "0-4k": {"score": 50.0, "score_expected": 50.0, "total": 1.0, "n": 2, "n_expected": 1},
    }
    assert (summary["n"], summary["total"], summary["score_expected"]) == (8, 7.0, 70.0)
    assert summary["counts"]["ungrouped"] == 2
    assert [record["groups"] for record in records[:3]] == [["0-4k"], ["0-4k"], ["4-8k"]]


def test_groups_that_the_spec_does_not_name_come_last() -> None:
    rows = [{**row("x", "x"), "length": 9000}, {"error": "e", "length": 9000}, {**row("x", "x"), "length": 1}]
    groups = score_cell(rows, longbench_e(groups={"0-4k": 1}))[1]["groups"]
    assert list(groups) == ["0-4k", "8k+"]
    assert groups["8k+"] == {"score": 100.0, "score_expected": 50.0, "total": 1.0, "n": 1, "n_expected": 2}
    assert score_cell([], longbench_e(groups={"0-4k": 1}))[1]["groups"] == {
        "0-4k": {"score": None, "score_expected": 0.0, "total": 0.0, "n": 0, "n_expected": 1}
    }


def test_benchmarks_without_groups_have_none() -> None:
    records, summary = score_cell([row("x", "x")], cell())
    assert summary["groups"] == {}
    assert "groups" not in records[0]


def test_doubled_rows_are_counted_and_can_be_left_out(tmp_path: Path) -> None:
    rows = [row("x", "x"), row("y", "x"), row("y", "x", length=2)]
    for which, n in (("all", 6), ("distinct", 3)):
        records, summary = score_cell(rows + rows, cell(rows=which, n_expected=3))
        assert (summary["rows"], summary["n"], len(records)) == (6, n, n)
        assert (summary["score"], summary["counts"]["duplicates"]) == (33.33, 3)
    path = tmp_path / "p.jsonl"
    path.write_text((json.dumps(row("x\ufffd", "x")) + "\n\n") * 2, encoding="utf-8")
    assert run(path, cell(rows="distinct"), tmp_path / "s.json", tmp_path / "r.jsonl")["n"] == 1
    assert len((tmp_path / "r.jsonl").read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("answers", "last", "first"),
        ("clean", "first", "first_line"),
        ("rounding", "nunpy", "numpy"),
        ("rows", "distinkt", "distinct"),
        ("code_similarity", "Levenshtein", "levenshtein"),
    ],
)
def test_unknown_choices_are_told(key: str, value: str, words: str) -> None:
    with pytest.raises(UserError, match=f"{key}: '{value}' is not known.*{words}"):
        score_cell([], cell(**{key: value}))


# --- LongBench v2 ----------------------------------------------------------------------------------------------------


def v2(**changes: Any) -> dict[str, Any]:
    return cell("choice", **{"benchmark": "longbench_v2", "dataset": "longbench_v2", "length": "full", **changes})


@pytest.mark.parametrize(
    ("fields", "score", "flags"),
    [
        ({"pred": "A", "answer": "A"}, 1.0, []),
        ({"pred": "A", "answer": "B", "judge": True}, 0.0, []),
        ({"pred": "A", "judge": True}, 1.0, []),
        ({"pred": "A", "judge": False}, 0.0, []),
        ({"judge": 1}, 1.0, []),
        ({"pred": None, "answer": "A"}, 0.0, ["unparsed"]),
        ({"pred": None, "judge": False}, 0.0, ["unparsed"]),
        ({"pred": None}, 0.0, ["unparsed"]),
        ({"pred": "", "answer": "A"}, 0.0, ["unparsed"]),
        ({"response": "The correct answer is **(B)**", "answer": "B"}, 1.0, []),
        ({"response": "The correct answer is (B)", "answer": "B", "judge": False}, 0.0, []),
        ({"response": "B", "answer": "B"}, 0.0, ["unparsed"]),
        ({"pred": "The correct answer is (B)", "answers": ["B"], "error": None}, 1.0, []),
        ({"pred": "B", "answers": ["B"]}, 0.0, ["unparsed"]),
        ({"error": "timeout"}, None, ["failed"]),
        ({"pred": "", "answers": ["B"], "error": "timeout"}, None, ["failed"]),
        ({"pred": None, "judge": None, "error": "timeout"}, None, ["failed"]),
        ({"answer": "A"}, None, ["failed"]),
    ],
)
def test_choices(fields: dict[str, Any], score: float | None, flags: list[str]) -> None:
    records, summary = score_cell([{"_id": "q", **fields}], v2())
    assert (records[0]["score"], records[0]["flags"]) == (score, flags)
    assert (records[0]["id"], records[0]["question_id"]) == ("q", "q")
    assert summary["n"] == (score is not None)
    assert summary["counts"]["failed"] == (score is None)


def test_answers_that_cannot_be_read_are_compensated() -> None:
    rows = [
        {"pred": "A", "answer": "A", "difficulty": "easy", "length": "short", "domain": "Code"},
        {"pred": None, "answer": "A", "difficulty": "easy", "length": "long", "domain": "Code"},
        {"pred": None, "answer": "A", "difficulty": "hard", "length": "long", "domain": "Code"},
        {"error": "timeout"},
    ]
    summary = score_cell(rows, v2(n_expected=4, groups={"easy": 2, "hard": 2}))[1]
    assert (summary["score"], summary["score_expected"], summary["compensated"]) == (33.33, 25.0, 50.0)
    assert {name: group["compensated"] for name, group in summary["groups"].items()} == {
        "easy": 62.5,
        "hard": 25.0,
        "short": 100.0,
        "domain: Code": 50.0,
        "long": 25.0,
    }
    assert summary["compensated_expected"] == 37.5  # (1 + 2 / 4) of 4: a missing answer is no guess
    assert summary["bounds"] == [25.0, 50.0]  # one of four is right, and one more if the failed one were
    assert summary["groups"]["hard"] == {
        "score": 0.0,
        "score_expected": 0.0,
        "compensated": 25.0,
        "compensated_expected": 12.5,
        "bounds": [0.0, 50.0],
        "total": 0.0,
        "n": 1,
        "n_expected": 2,
    }
    assert summary["counts"]["unparsed"] == 2
    assert summary["counts"]["ungrouped"] == 1
    assert {"compensated", "bounds"} & set(score_cell([row("x", "x")], cell())[1]) == set()


# --- several answers to each record ----------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [3, 1])
def test_repeats_by_hand(declared: int) -> None:
    """The rows of a file made elsewhere tell of their repeats themselves."""
    answers_of = [("x", "x", "y"), ("x", "y", "y"), ("x", "x", "x"), ("y", "x", "y")]
    rows = [row(p, "x", id=str(i), repeat=r) for i, answers in enumerate(answers_of) for r, p in enumerate(answers)]
    del rows[-1]  # the third answer to the last question, a wrong one, is missing
    lines, summary = score_cell(rows, cell(n_expected=4 * declared, repeats=declared))
    assert [(line["id"], line["repeat"]) for line in lines[:4]] == [("0", 0), ("0", 1), ("0", 2), ("1", 0)]
    assert (summary["score"], summary["score_expected"]) == (63.64, 58.33)  # 7 of 11, of 12
    assert (summary["n"], summary["n_expected"]) == (11, 12)
    assert summary["repeats"] == {
        "n": 3,
        "scores": [75.0, 75.0, 33.33],
        "scores_expected": [75.0, 75.0, 25.0],
        "sd": 28.87,  # 50 / sqrt(3)
        "low": 25.0,
        "high": 75.0,
    }


def test_groups_expect_every_answer() -> None:
    known = {"difficulty": "easy", "length": "short", "domain": "Code", "answer": "A"}
    rows = [{"_id": str(i), "repeat": r, "pred": "A", **known} for i in range(2) for r in range(3)]
    for spec in (
        v2(n_expected=9, repeats=3, groups={"easy": 6, "hard": 3}),
        v2(n_expected=3, groups={"easy": 2, "hard": 1}),
    ):
        groups = score_cell(rows, spec)[1]["groups"]
        assert (groups["easy"]["n"], groups["easy"]["n_expected"], groups["easy"]["score"]) == (6, 6, 100.0)
        assert (groups["hard"]["n"], groups["hard"]["n_expected"]) == (0, 3)
        assert (groups["short"]["n"], groups["short"]["n_expected"]) == (6, 6)


def test_a_repeat_that_is_missing_whole_counts_nothing() -> None:
    summary = score_cell([row("x", "x", repeat=0), row("x", "x", repeat=2)], cell(n_expected=3, repeats=3))[1]
    assert summary["repeats"]["scores"] == [100.0, None, 100.0]
    assert summary["repeats"]["scores_expected"] == [100.0, 0.0, 100.0]
    assert summary["score_expected"] == 66.67


def test_rows_without_repeats_have_no_spread() -> None:
    lines, summary = score_cell([row("x", "x"), row("x", "x", repeat=None)], cell())
    assert "repeats" not in summary
    assert "repeat" not in lines[0]
    assert score_cell([], cell(n_expected=4, repeats=2))[1]["repeats"]["sd"] == 0.0  # all that was expected is missing


@pytest.mark.parametrize("repeat", ["1", 1.0, True, -1, 1000])
def test_a_repeat_that_is_no_number_is_named(repeat: Any) -> None:
    with pytest.raises(UserError, match=r"x\.jsonl, row 1: 'repeat' must be a whole number"):
        score_cell([row("x", "x", repeat=repeat)], cell(), where="x.jsonl")


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30), st.integers(1, 5))
def test_repeats_and_groups_never_lose_a_row(rows: list[tuple[int, bool]], declared: int) -> None:
    """Whatever rows are found, bounds hold the score, and no score is above 100."""
    known = {"difficulty": "easy", "answer": "A"}
    given_rows = [{"_id": str(i), "repeat": r, "pred": "AB"[ok], **known} for i, (r, ok) in enumerate(rows)]
    summary = score_cell(given_rows, v2(n_expected=6 * declared, repeats=declared))[1]
    low, high = summary["bounds"]
    assert 0 <= low == summary["score_expected"] <= high <= 100
    assert summary["n"] == len(rows)
    if "repeats" in summary:
        assert len(summary["repeats"]["scores"]) == summary["repeats"]["n"] == max(declared, len({r for r, _ in rows}))
        assert summary["n_expected"] == 6 * summary["repeats"]["n"]


def test_thoughts_beside_an_answer_are_not_scored() -> None:
    thoughts = {"response_cot": "The correct answer is (B)", "reasoning": "The correct answer is (C)"}
    answered = {"pred": "The correct answer is (A)", "answers": ["A"], **thoughts}
    assert score_cell([answered], v2(n_expected=1))[1]["score"] == 100.0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"pred": "A"}, ["'answer'", "'judge'", "missing"]),
        ({"pred": 3, "answer": "A"}, ["'pred'", "a string or null", "a number"]),
        ({"pred": "A", "answer": ["A"]}, ["'answer'", "a string or null", "a list"]),
        ({"pred": "A", "judge": "yes"}, ["'judge'", "true or false", "a string"]),
        ({"pred": "A", "answers": "A"}, ["'answers'", "a list of strings", "a string"]),
    ],
)
def test_bad_choices_are_named(bad: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        score_cell([bad], v2(), where="v2.jsonl")
    message = str(caught.value)
    assert message.startswith("v2.jsonl, row 1: ")
    assert all(word in message for word in words)


# --- files -----------------------------------------------------------------------------------------------------------


def test_run_writes_both_files_the_same_each_time(tmp_path: Path) -> None:
    predictions = tmp_path / "p.jsonl"
    predictions.write_text(
        "\n" + json.dumps(row("北京", "北京"), ensure_ascii=False) + "\n\n" + json.dumps(row("\ud800", "x")) + "\n",
        encoding="utf-8",
    )
    files = []
    for number in (1, 2):
        summary_path, records_path = tmp_path / f"{number}" / "s.json", tmp_path / f"{number}" / "r.jsonl"
        summary = run(predictions, cell(), summary_path, records_path)
        assert json.loads(summary_path.read_text(encoding="utf-8")) == summary
        assert summary["score"] == 50.0
        assert len(records_path.read_text(encoding="utf-8").splitlines()) == 2
        files.append((summary_path.read_bytes(), records_path.read_bytes()))
    assert files[0] == files[1]


def test_run_leaves_nothing_behind_after_an_error(tmp_path: Path) -> None:
    predictions = tmp_path / "p.jsonl"
    predictions.write_text(json.dumps(row("x", "x")) + "\n" + json.dumps(row(1, "x")) + "\n", encoding="utf-8")
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"p\.jsonl, row 2: 'pred'"):
        run(predictions, cell(), out / "s.json", out / "r.jsonl")
    assert not any(out.iterdir())


def test_empty_file_is_scored_as_no_rows(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").touch()
    summary = run(tmp_path / "p.jsonl", cell(), tmp_path / "s.json", tmp_path / "r.jsonl")
    assert (summary["score"], summary["score_expected"], summary["n"]) == (None, 0.0, 0)
    assert (tmp_path / "r.jsonl").read_bytes() == b""
