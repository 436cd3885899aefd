"""Scoring cells: the reference's numbers for whole files, and what becomes of odd rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longflow.errors import UserError
from longflow.records import Prediction, Record
from longflow.score import run, score_cell

VECTORS = json.loads((Path(__file__).parent / "data" / "lveval_vectors.json").read_text(encoding="utf-8"))
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
        "first_answer_only": True,
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


@pytest.mark.parametrize("name", VECTORS["end_to_end"]["files"])
def test_reference_run(name: str) -> None:
    subset = name.removesuffix(".jsonl")
    dataset, length = subset.rsplit("_", 1)
    rows = VECTORS["end_to_end"]["files"][name]
    _, summary = score_cell(rows, cell(METRIC[dataset], len(rows), dataset=dataset, length=length))
    assert repr(summary["score"]) == repr(json.loads(VECTORS["end_to_end"]["result_json"])[subset])
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
    assert score_cell(rows, cell(first_answer_only=False))[1]["score"] == 100.0


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
        "ran_out": 1,
    }
    assert summary["sent_tokens"] == {"mean": round(61 / 3, 2), "max": 30}
    assert summary["answer_keywords"] == {"present": 4, "absent": 0}


def test_rows_without_pred_fail_and_are_not_scored() -> None:
    rows = [row("x", "x"), {"_id": "7", "agent": "a", "error": "timeout"}, {"pred": None, "error": "e"}]
    records, summary = score_cell(rows, cell(n_expected=4))
    assert summary["score"] == 100.0
    assert summary["score_expected"] == 25.0
    assert (summary["n"], summary["counts"]["failed"]) == (1, 2)
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
    rows = [row("x", "x")] * 3
    assert score_cell(rows, cell(n_expected=4))[1]["score_expected"] == 75.0
    assert score_cell(rows + rows, cell(n_expected=3))[1]["score_expected"] == 100.0
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
        (row(None, "x"), ["'pred'", "a string", "null"]),
        (row(["x"], "x"), ["'pred'", "a string", "a list"]),
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
