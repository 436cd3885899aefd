"""Tables, protocol, leaderboard, published scores and preview."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from helpers_scores import summary

from longflow import benchmarks, leaderboard, published
from longflow.cells import Cell
from longflow.errors import UserError
from longflow.preview import aligned, preview, width
from longflow.tables import csv_text, protocol_json, read_summaries, write_tables

SHARED = Path(__file__).resolve().parents[2] / "shared"
LVEVAL = benchmarks.load("lveval")


def long_form(summaries: list[dict[str, Any]]) -> dict[tuple[str, str, str], tuple[Any, ...]]:
    """(source, model, group) -> (score, n, n_expected)"""
    return {(str(row[3]), str(row[2]), str(row[4])): row[5:] for row in leaderboard.long_rows(summaries)}


def wide(summaries: list[dict[str, Any]], benchmark: str = "lveval") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(*leaderboard.wide_table(summaries, benchmark)))))


# Tables and protocol


def test_tables_are_the_reference_evaluators_for_its_scores(tmp_path: Path) -> None:
    vectors = SHARED / "reference" / "golden_vectors.json"
    if not vectors.exists():
        pytest.skip("shared/reference is absent")
    golden = json.loads(vectors.read_text(encoding="utf-8"))["lveval_end_to_end"]
    cells = [(*name.rsplit("_", 1), score) for name, score in json.loads(golden["result_json"]).items()]
    summaries = [summary(dataset, length, score) for dataset, length, score in reversed(cells)]
    write_tables(summaries, "lveval", tmp_path / "result.json", tmp_path / "result.csv")
    assert (tmp_path / "result.json").read_text(encoding="utf-8") == golden["result_json"]
    ours, theirs = (
        list(csv.DictReader(io.StringIO(text)))
        for text in ((tmp_path / "result.csv").read_text(encoding="utf-8"), golden["result_csv"])
    )
    assert ours == theirs  # equal but for the order of the columns


def test_tables_give_the_score_of_the_rows_found_and_leave_out_cells_without(tmp_path: Path) -> None:
    summaries = [
        summary("cmrc_mixup", "16k", 40.0, n=100, score_expected=20.0),
        summary("lic_mixup", "16k", None, n=0, score_expected=0.0),
    ]
    write_tables(summaries, "lveval", tmp_path / "result.json", tmp_path / "result.csv")
    assert json.loads((tmp_path / "result.json").read_text()) == {"cmrc_mixup_16k": 40.0}
    assert "lic_mixup" not in (tmp_path / "result.csv").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["result.csv", "result.json"]
    assert protocol_json(summaries, {})["cells_without_score"] == ["lic_mixup/16k"]


def test_protocol_keeps_the_facts_and_adds_up_the_counts() -> None:
    summaries = [
        summary(
            "cmrc_mixup",
            "16k",
            40.0,
            n=190,
            counts={"truncated": 7, "failed": 2, "empty": 1},
            answer_keywords={"present": 0, "absent": 190},
        ),
        summary("cmrc_mixup", "32k", 30.0, counts={"truncated": 100}, answer_keywords={"present": 150, "absent": 50}),
        summary("lic_mixup", "16k", 10.0),
    ]
    protocol = protocol_json(summaries, {"dtype": "float32"})
    assert protocol["dtype"] == "float32"
    records = {key: protocol["records"][key] for key in ("expected", "found", "scored", "truncated", "empty", "failed")}
    assert records == {
        "expected": 200 + 200 + 197,
        "found": 190 + 200 + 197,
        "scored": 190 + 200 + 197,
        "truncated": 107,
        "empty": 1,
        "failed": 2,
    }
    assert protocol["cells"]["cmrc_mixup/16k"]["failed"] == 2
    assert protocol["answer_keywords"] == {
        "cmrc_mixup": {"present": 150, "absent": 240},
        "lic_mixup": {"present": 197, "absent": 0},
    }


def test_a_file_that_is_no_summary_is_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(summary("cmrc_mixup", "16k", 1.0)))
    value = summary("cmrc_mixup", "16k", 1.0)
    del value["n_expected"]
    bad.write_text(json.dumps(value))
    assert read_summaries([good]) == [summary("cmrc_mixup", "16k", 1.0)]
    with pytest.raises(UserError, match=r"bad\.json.*'n_expected'"):
        read_summaries([good, bad])
    bad.write_text("[]")
    with pytest.raises(UserError, match=r"bad\.json"):
        read_summaries([bad])
    with pytest.raises(UserError, match="lveval/mine/full/cmrc_mixup/16k is also in"):
        read_summaries([good, good])


# Published scores


def test_published_scores_are_those_of_the_reference() -> None:
    path = SHARED / "reference" / "published_scores.json"
    if not path.exists():
        pytest.skip("shared/reference is absent")
    table = json.loads(path.read_text(encoding="utf-8"))["lveval"]
    models = {model.name: model for model in published.load("lveval")}
    assert set(models) == {*table["overall_by_length"], "Qwen2-72B-Instruct"}
    seen = 0
    for readme_name, by_model in table["by_dataset_by_length"].items():
        dataset = readme_name.replace("-MR-", "-MIR-").replace("-", "_")
        for model, by_length in by_model.items():
            for length, score in by_length.items():
                assert models[model].scores[dataset, length] == score
                seen += 1
    assert seen == sum(len(m.scores) for m in models.values()) - 11 == 550
    qwen = {f"{d}_{n}": score for (d, n), score in models["Qwen2-72B-Instruct"].scores.items()}
    assert qwen == table["qwen2_72b_instruct_16k"]
    for model, by_length in table["overall_by_length"].items():
        assert models[model].overall == by_length


def test_published_overall_is_the_mean_of_the_published_data_sets() -> None:
    rows = long_form([summary("cmrc_mixup", "16k", 1.0)])
    checked = 0
    for model in published.load("lveval"):
        assert {dataset for dataset, _ in model.scores} == set(LVEVAL.tasks)
        for length, overall in model.overall.items():
            score, n, n_expected = rows["published", model.name, length]
            assert score == pytest.approx(overall, abs=0.0051)
            assert n is None
            assert n_expected == 1729  # records of LV-Eval at each length, by its README
            checked += 1
    assert checked == 50


def test_published_windows_are_those_in_the_models_names() -> None:
    for model in published.load("lveval"):
        named = [part for part in model.name.split("-") if part in ("8k", "16k", "32k", "200k")]
        assert model.window == (named or [{"Llama2-7B-Chat-hf": "4k"}.get(model.name, "128k")])[0]
        assert (model.hub is None) == model.name.startswith("GPT")
    chatglm = published.load("lveval")[0]
    assert [chatglm.beyond_window(n) for n in ("16k", "32k", "64k")] == [False, False, True]
    assert published.load("demo") == ()


# Leaderboard


def test_long_form_by_hand() -> None:
    rows = long_form(
        [
            summary("cmrc_mixup", "16k", 40.0),
            summary("cmrc_mixup", "32k", 20.0),
            summary("lic_mixup", "16k", 11.01, n=97, score_expected=5.42),
            summary("lic_mixup", "32k", 0.0),
        ]
    )
    mine = {group: row for (source, _, group), row in rows.items() if source == "longflow"}
    assert mine == {
        "cmrc_mixup/16k": (40.0, 200, 200),
        "cmrc_mixup/32k": (20.0, 200, 200),
        "lic_mixup/16k": (5.42, 97, 197),  # over the records expected, not over those found
        "lic_mixup/32k": (0.0, 197, 197),
        "16k": (22.71, 297, 397),  # (40 + 5.42) / 2
        "32k": (10.0, 397, 397),
        "cmrc_mixup": (30.0, 400, 400),
        "lic_mixup": (2.71, 294, 394),
        "overall": (16.36, 694, 794),  # (22.71 + 10) / 2 = 16.355; Python rounds 16.355 up
    }


def test_long_form_overall_is_the_mean_of_level_means_and_skips_what_has_no_score() -> None:
    rows = long_form(
        [
            summary("cmrc_mixup", "16k", 40.0),
            summary("lic_mixup", "16k", 20.0),
            summary("cmrc_mixup", "32k", 10.0),
            summary("lic_mixup", "32k", None, n=0, score_expected=None),
        ]
    )
    assert rows["longflow", "mine", "overall"][0] == 20.0  # (30 + 10) / 2, not (40 + 20 + 10) / 3
    assert ("longflow", "mine", "lic_mixup/32k") not in rows


def test_files_have_the_columns_promised_and_two_decimals(tmp_path: Path) -> None:
    summaries = [summary("cmrc_mixup", "16k", 40.0), summary("singlehop_en", "250", 5.0, benchmark="demo")]
    leaderboard.write_leaderboard(summaries, tmp_path / "leaderboard.csv", tmp_path / "leaderboard")
    lines = (tmp_path / "leaderboard.csv").read_bytes().split(b"\n")
    assert lines[0] == b"benchmark,setting,model,source,group,score,n,n_expected"
    assert b"lveval,full,mine,longflow,cmrc_mixup/16k,40.00,200,200" in lines
    assert b"lveval,full,ChatGLM3-6B-32k,published,16k,30.70,,1729" in lines
    header = (tmp_path / "leaderboard" / "lveval.csv").read_text().splitlines()[0]
    assert header == "rank,model,setting,source,datasets,lengths,16k,overall,n,n_expected,truncated,failed,window,hub"
    demo = list(csv.DictReader((tmp_path / "leaderboard" / "demo.csv").open()))
    assert [row["source"] for row in demo] == ["longflow"]  # nothing is published for it
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.csv")}
    leaderboard.write_leaderboard(summaries[::-1], tmp_path / "leaderboard.csv", tmp_path / "leaderboard")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.csv")} == before


def test_wide_table_ranks_all_rows_over_the_same_cells() -> None:
    rows = wide([summary("cmrc_mixup", length, score) for length, score in (("16k", 30.0), ("32k", 25.0))])
    assert list(rows[0])[6:9] == ["16k", "32k", "overall"]
    by_model = {row["model"]: row for row in rows}
    assert by_model["mine"]["overall"] == "27.50"
    assert by_model["mine"]["datasets"] == "1 of 11"
    assert by_model["mine"]["lengths"] == "2 of 5"
    # Published cmrc-mixup: ChatGLM3 51.21 and 46.34, BlueLM 45.89 and 19.53, so 48.775 and 32.71 stand above 27.50.
    assert [row["model"] for row in rows[:3]] == ["ChatGLM3-6B-32k", "BlueLM-7B-32k-Chat", "mine"]
    assert [row["rank"] for row in rows[:3]] == ["1", "2", "3"]
    assert by_model["BlueLM-7B-32k-Chat"]["overall"] == "32.71"
    assert by_model["ChatGLM3-6B-32k"]["datasets"] == "1 of 11"
    assert (by_model["ChatGLM3-6B-32k"]["window"], by_model["ChatGLM3-6B-32k"]["hub"]) == (
        "32k",
        "THUDM/chatglm3-6b-32k",
    )
    # Published at 16k only, so without a score over both lengths.
    assert rows[-1]["model"] == "Qwen2-72B-Instruct"
    assert (rows[-1]["rank"], rows[-1]["16k"], rows[-1]["overall"]) == ("", "37.05", "")


def test_wide_table_over_all_data_sets_has_the_published_means() -> None:
    rows = {row["model"]: row for row in wide([summary(d, n, 10.0) for d in LVEVAL.tasks for n in LVEVAL.lengths])}
    for model in published.load("lveval"):
        for length, overall in model.overall.items():
            assert float(rows[model.name][length]) == pytest.approx(overall, abs=0.0051)
    assert rows["mine"]["datasets"] == "11 of 11"
    assert rows["mine"]["n"] == "8645"  # all of LV-Eval


def test_wide_table_compares_own_models_where_all_have_scores() -> None:
    rows = wide(
        [
            summary("cmrc_mixup", "16k", 10.0, model="short"),
            summary("cmrc_mixup", "16k", 10.0, model="long"),
            summary("cmrc_mixup", "256k", 90.0, model="long"),
            summary("cmrc_mixup", "16k", 99.0, model="other", setting="blind"),
            summary("cmrc_mixup", "16k", None, model="nothing", n=0, score_expected=None),
        ]
    )
    mine = [row for row in rows if row["source"] == "longflow"]
    assert [(row["model"], row["overall"], row["256k"]) for row in mine] == [
        ("other", "99.00", ""),
        ("long", "10.00", "90.00"),  # 256k is shown and does not count
        ("short", "10.00", ""),
        ("nothing", "", ""),
    ]
    ranks = {row["model"]: row["rank"] for row in mine}
    assert ranks["long"] == ranks["short"] != ""
    assert (ranks["other"], ranks["nothing"]) == ("1", "")
    assert [row["lengths"] for row in mine] == ["1 of 5", "1 of 5", "1 of 5", "0 of 5"]


def test_wide_table_says_where_levels_have_different_data_sets() -> None:
    cells = [("cmrc_mixup", "16k"), ("lic_mixup", "16k"), ("cmrc_mixup", "32k")]
    (mine,) = [row for row in wide([summary(d, n, 10.0) for d, n in cells]) if row["source"] == "longflow"]
    assert mine["datasets"] == "1 to 2 of 11"


# Preview


def test_preview_of_an_unfinished_run() -> None:
    cells = [Cell("lveval", "mine", "full", d, n) for d in ("lic_mixup", "cmrc_mixup") for n in ("16k", "32k")]
    text = preview(
        [
            summary("cmrc_mixup", "16k", 40.0),
            summary("lic_mixup", "16k", 20.0),
            summary("cmrc_mixup", "32k", 12.5, n=50, counts={"failed": 3}),
            summary("cmrc_mixup", "64k", 99.0),  # not asked for
        ],
        cells,
    )
    lines = text.splitlines()
    assert lines[0] == "lveval / mine / full: 3 of 4 cells scored, 447 of 597 records found in them, 3 failed"
    assert lines[1].split() == ["16k", "32k"]
    assert lines[2].split() == ["cmrc_mixup", "40.00", "12.50~"]  # in the benchmark's order
    assert lines[3].split() == ["lic_mixup", "20.00", "·"]
    assert lines[4].split() == ["mean", "30.00", "12.50*"]
    assert "99" not in text
    for mark in "·~*":
        assert mark in lines[-1]


def test_preview_before_anything_is_scored() -> None:
    text = preview([], [Cell("lveval", "mine", "full", "cmrc_mixup", "16k")])
    assert "0 of 1 cells scored" in text
    assert "·" in text
    assert "no cells" in preview([], [])


def test_tables_for_the_terminal_align_chinese() -> None:
    text = aligned([["", "16k"], ["中文数据集", "1.00"], ["english", "10.00"]])
    assert len({width(line) for line in text.splitlines()[1:]}) == 1
    assert width("中文（a）") == 9
