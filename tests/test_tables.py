"""Tables, protocol, leaderboard, published scores and preview."""

from __future__ import annotations

import csv
import io
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from helpers_scores import groups, summary

from longflow import benchmarks, leaderboard, means, published
from longflow.cells import Cell
from longflow.errors import UserError
from longflow.preview import aligned, preview, width
from longflow.tables import csv_text, protocol_json, read_summaries, write_tables

SHARED = Path(__file__).resolve().parents[2] / "shared"
LVEVAL = benchmarks.load("lveval")
LONGBENCH = benchmarks.load("longbench")


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
        assert models[model].means == by_length


def test_published_overall_is_the_mean_of_the_published_data_sets() -> None:
    rows = long_form([summary("cmrc_mixup", "16k", 1.0)])
    checked = 0
    for model in published.load("lveval"):
        assert {dataset for dataset, _ in model.scores} == set(LVEVAL.tasks)
        for length, overall in model.means.items():
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


def test_published_longbench_is_that_of_the_reference() -> None:
    shared = SHARED / "reference"
    if not shared.exists():
        pytest.skip("shared/reference is absent")
    table = json.loads((shared / "published_scores.json").read_text(encoding="utf-8"))["longbench"]
    tasks = json.loads((shared / "longbench_tasks.json").read_text(encoding="utf-8"))
    names = {task["display_name"]: name for name, task in tasks["tasks"].items()}
    models = {model.name: model for model in published.load("longbench")}
    assert list(models) == list(table["per_dataset"])
    hub = tasks["_meta"]["model2path"]
    for name, model in models.items():
        assert model.scores == {(names[d], "full"): score for d, score in table["per_dataset"][name].items()}
        for language, prefix in (("english", "en"), ("chinese", "zh")):
            for category, score in table[f"categories_{language}"][name].items():
                assert model.means[language.title() if category == "Avg" else f"{prefix}/{category}"] == score
        assert model.hub == hub.get(name.lower())
        assert name.endswith(f"-{model.window}")
    (v2,) = published.load("longbench_v2")
    quoted = json.loads((shared / "published_scores.json").read_text(encoding="utf-8"))["extra"]
    official = quoted["longbench_v2_llama31_8b"]
    column = official.pop("_columns").index("official")
    assert v2.means == {name.lower(): values[column] for name, values in official.items()}


def test_published_longbench_means_are_those_of_the_published_data_sets() -> None:
    checked = 0
    for model in published.load("longbench"):
        scores = {f"{dataset}/{length}": score for (dataset, length), score in model.scores.items()}
        computed = means.means(LONGBENCH.module.MEANS, scores)
        assert set(computed) == set(model.means)
        for name, score in model.means.items():
            assert computed[name].score == pytest.approx(score, abs=0.0701)  # the README's are of unrounded scores
            checked += 1
    assert checked == 8 * 14


# Leaderboard


def test_means_need_all_their_members() -> None:
    members = {"a": ["x/full", "y/full/short"], "b": ["z/full"], "both": ["a", "b"], "again": ["both", "x/full"]}
    whole = means.means(members, {"x/full": 10.0, "y/full/short": 20.0, "z/full": 3.0})
    assert {name: mean.score for name, mean in whole.items()} == {"a": 15.0, "b": 3.0, "both": 9.0, "again": 9.5}
    assert whole["again"].behind == ("x/full", "y/full/short", "z/full")  # each once
    assert set(means.means(members, {"x/full": 10.0, "y/full/short": 20.0})) == {"a"}
    assert means.means(members, {"x/full": 10.0}, {"both": 7.0})["again"].score == 8.5  # published as 7.0
    assert means.means({"a": ["b"], "b": ["a"], "empty": []}, {}) == {}
    assert means.averages(members) == ["again"]


def longbench(scores: dict[str, float], model: str = "mine") -> list[dict[str, Any]]:
    return [summary(dataset, "full", score, model, benchmark="longbench") for dataset, score in scores.items()]


def test_longbench_by_hand() -> None:
    scores = dict.fromkeys(LONGBENCH.tasks, 10.0) | {"lcc": 70.0, "repobench-p": 50.0, "dureader": 40.0}
    rows = long_form(longbench(scores))
    assert rows["longflow", "mine", "en/Code Completion"] == (60.0, 1000, 1000)
    assert rows["longflow", "mine", "zh/Code Completion"] == (60.0, 1000, 1000)
    assert rows["longflow", "mine", "English"] == (18.33, 3750, 3750)  # (5 x 10 + 60) / 6
    assert rows["longflow", "mine", "Chinese"] == (23.33, 2000, 2000)  # (4 x 10 + 40 + 60) / 6
    assert rows["longflow", "mine", "dureader/full"] == (40.0, 200, 200)
    assert rows["published", "ChatGLM3-6B-32k", "English"] == (48.5, None, 3750)
    assert "overall" not in {group for _, _, group in rows}
    table = wide(longbench(scores), "longbench")
    by_model = {row["model"]: row for row in table}
    assert by_model["mine"]["datasets"] == "21 of 21"
    assert "lengths" not in table[0]
    assert (by_model["mine"]["English"], by_model["mine"]["n"]) == ("18.33", "4750")
    assert [row["model"] for row in table[:2]] == ["ChatGLM3-6B-32k", "GPT-3.5-Turbo-16k"]  # 48.5 and 44.0 in English
    assert [row["rank"] for row in table] == [str(i + 1) for i in range(9)]


def test_longbench_in_part_is_ranked_by_what_all_have() -> None:
    chinese = [d for d, task in LONGBENCH.tasks.items() if task.language != "en"]
    rows = wide(longbench(dict.fromkeys(chinese, 50.0)), "longbench")
    (mine,) = [row for row in rows if row["source"] == "longflow"]
    assert (mine["Chinese"], mine["English"], mine["rank"]) == ("50.00", "", "2")  # behind ChatGLM3's 52.8
    assert (mine["en/Code Completion"], mine["en/Synthetic Tasks"], mine["datasets"]) == ("50.00", "", "7 of 21")
    rows = wide([*longbench({"lcc": 50.0}, "partial"), *longbench(dict.fromkeys(LONGBENCH.tasks, 20.0))], "longbench")
    ranks = {row["model"]: row["rank"] for row in rows}
    assert ranks["partial"] == ""
    assert ranks["ChatGLM3-6B-32k"] == "1"  # nothing is common, so the last column decides
    assert rows[-1]["model"] == "partial"


def test_longbench_e_by_bucket() -> None:
    table = benchmarks.load("longbench_e")
    summaries = []
    for dataset, task in table.tasks.items():
        scores = {"0-4k": 30.0, "4-8k": 20.0, "8k+": 13.0 if task.category == "Code Completion" else 10.0}
        found = groups(scores, dict(task.extra["groups"]))
        summaries.append(summary(dataset, "full", 20.0, benchmark="longbench_e", groups=found))
    rows = long_form(summaries)
    assert rows["longflow", "mine", "qasper/full/8k+"] == (10.0, 24, 24)
    assert rows["longflow", "mine", "8k+/Code Completion"] == (13.0, 200, 200)
    assert rows["longflow", "mine", "8k+"][0] == 10.5  # (5 x 10 + 13) / 6
    assert rows["longflow", "mine", "0-4k"][1] == sum(t.extra["groups"]["0-4k"] for t in table.tasks.values())
    (row,) = wide(summaries, "longbench_e")
    assert (row["0-4k"], row["4-8k"], row["8k+"]) == ("30.00", "20.00", "10.50")
    # An empty bucket: no score for it, nor for a mean that needs it, and a count of 0.
    summaries[0]["groups"] = groups(
        {"0-4k": 30.0, "4-8k": 20.0, "8k+": None}, dict(table.tasks["qasper"].extra["groups"])
    )
    summaries[0]["groups"]["8k+"].update(n=0, score_expected=None)
    (row,) = wide(summaries, "longbench_e")
    assert (row["0-4k"], row["8k+"]) == ("30.00", "")
    assert protocol_json(summaries, {})["groups"]["qasper/full"]["8k+"] == {"expected": 24, "scored": 0}
    text = preview(summaries, [Cell("longbench_e", "mine", "full", d, "full") for d in table.tasks])
    lines = text.splitlines()
    assert lines[1].split() == ["full", "0-4k", "4-8k", "8k+"]
    assert lines[2].split() == ["qasper", "20.00", "30.00", "20.00", "·"]
    assert "averages: 0-4k 30.00   4-8k 20.00   8k+ ·" in text


def longbench_v2(scores: dict[str, float], overall: float, model: str = "mine", **changes: Any) -> dict[str, Any]:
    sizes = dict(benchmarks.load("longbench_v2").tasks["longbench_v2"].extra["groups"])
    found = groups(dict(scores), {name: sizes[name] for name in scores}, changes.pop("found", None))
    return summary("longbench_v2", "full", overall, model, benchmark="longbench_v2", groups=found, **changes)


def test_longbench_v2_by_hand() -> None:
    scores = {"easy": 40.0, "hard": 30.0, "short": 20.0, "medium": 25.0, "long": 50.0}
    # 132 of the 400 answers found are right, 112 of the others cannot be read: 132 / 503 and (132 + 112 / 4) / 503;
    # with the 103 that are missing right as well (132 + 103) / 503.
    told: dict[str, Any] = {"score_expected": 26.24, "compensated_expected": 31.81, "bounds": [26.24, 46.72]}
    mine = longbench_v2(scores, 33.0, n=400, found={"long": 54}, **told)
    rows = long_form([mine])
    assert rows["longflow", "mine", "overall"] == (26.24, 400, 503)
    assert rows["longflow", "mine", "hard"] == (30.0, 311, 311)
    assert rows["longflow", "mine", "long"] == (25.0, 54, 108)  # half of the questions are missing
    assert rows["longflow", "mine", "longbench_v2/full/compensated"] == (31.81, 400, 503)
    assert rows["longflow", "mine", "longbench_v2/full/bound_low"] == (26.24, 400, 503)
    assert rows["longflow", "mine", "longbench_v2/full/bound_high"] == (46.72, 400, 503)
    assert rows["published", "Llama-3.1-8B", "overall"] == (30.0, None, 503)
    assert rows["published", "Llama-3.1-8B", "long"] == (25.9, None, 108)
    first, second = wide([mine], "longbench_v2")
    assert (first["model"], first["rank"], first["overall"], first["n_expected"]) == (
        "Llama-3.1-8B",
        "1",
        "30.00",
        "503",
    )
    assert (second["model"], second["rank"], second["overall"], second["long"]) == ("mine", "2", "26.24", "25.00")
    text = preview([mine], [Cell("longbench_v2", "mine", "full", "longbench_v2", "full")])
    assert text.splitlines()[1].split()[:2] == ["full", "bounds"]
    shown = ["33.00~", "26.24", "to", "46.72", "40.00", "30.00", "20.00", "25.00", "50.00~"]
    assert text.splitlines()[2].split() == ["longbench_v2", *shown]
    assert protocol_json([mine], {})["accuracy"] == {
        "longbench_v2/full": {"plain": 26.24, "compensated": 31.81, "bounds": [26.24, 46.72]}
    }


@pytest.mark.parametrize("setting", ["full", "cot", "compressed"])
def test_settings_are_rows_of_their_own_and_names_of_result_files_stay_the_benchmark_s(
    setting: str, tmp_path: Path
) -> None:
    told = {"setting": setting, "bounds": [33.0, 33.0], "compensated_expected": 34.0}
    scores = {"easy": 40.0, "hard": 30.0, "short": 20.0, "medium": 25.0, "long": 50.0}
    run = [longbench_v2(scores, 33.0, **told), longbench_v2(scores, 30.0, "other")]
    rows = {(str(r["model"]), str(r["setting"])): r["overall"] for r in wide(run, "longbench_v2")}
    assert rows["mine", setting] == "33.00"
    assert rows["other", "full"] == "30.00"
    assert ("longbench_v2", setting, "mine", "longflow", "overall") in {r[:5] for r in leaderboard.long_rows(run)}
    write_tables(run[:1], "longbench_v2", tmp_path / "result.json", tmp_path / "result.csv")
    assert set(json.loads((tmp_path / "result.json").read_text())) == {
        "Overall",
        "Easy",
        "Hard",
        "Short",
        "Medium",
        "Long",
    }
    assert (tmp_path / "result.csv").read_text().splitlines()[1].startswith("mine")


def test_the_spread_of_several_answers_by_hand() -> None:
    def repeated(dataset: str, length: str, *scores: float) -> dict[str, Any]:
        told = {"n": len(scores), "scores": list(scores), "scores_expected": list(scores)}
        told |= {"sd": statistics.stdev(scores), "low": min(scores), "high": max(scores)}
        return summary(dataset, length, statistics.fmean(scores), n_expected=10 * len(scores), repeats=told)

    run = [
        repeated("cmrc_mixup", "16k", 10.0, 20.0, 30.0),
        repeated("lic_mixup", "16k", 40.0, 20.0, 0.0),
        repeated("cmrc_mixup", "32k", 1.0, 2.0, 3.0),
    ]
    rows = long_form(run)
    assert rows["longflow", "mine", "cmrc_mixup/16k"] == (20.0, 30, 30)
    told = [
        rows["longflow", "mine", f"cmrc_mixup/16k/{name}"][0] for name in ("repeat_low", "repeat_high", "repeat_sd")
    ]
    assert told == [10.0, 30.0, 10.0]
    # The mean at 16k of the answers is 25, 20, 15: half as far apart as those of a data set.
    told = [rows["longflow", "mine", f"16k/{name}"][0] for name in ("repeat_low", "repeat_high", "repeat_sd")]
    assert told == [15.0, 25.0, 5.0]
    assert rows["longflow", "mine", "overall/repeat_sd"][0] == 2.0  # of 13, 11 and 9
    line = next(line for line in wide(run) if line["model"] == "mine")
    assert (line["overall"], line["sd"]) == ("11.00", "2.00")
    assert protocol_json(run, {})["spread"]["lic_mixup/16k"]["sd"] == 20.0
    cells = [Cell("lveval", "mine", "full", d, n) for d in ("cmrc_mixup", "lic_mixup") for n in ("16k", "32k")]
    lines = preview(run, cells).splitlines()
    assert lines[1].split() == ["16k", "sd", "32k", "sd"]
    assert lines[2].split() == ["cmrc_mixup", "20.00", "10.00", "2.00", "1.00"]
    assert lines[4].split() == ["mean", "20.00", "2.00*"]


def test_without_several_answers_there_is_no_word_of_a_spread() -> None:
    run = [summary("cmrc_mixup", "16k", 10.0)]
    assert not [group for _, _, group in long_form(run) if "repeat" in group]
    assert "sd" not in wide(run)[0]
    assert "spread" not in protocol_json(run, {})
    assert "sd" not in preview(run, [Cell("lveval", "mine", "full", "cmrc_mixup", "16k")])


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
        for length, overall in model.means.items():
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
