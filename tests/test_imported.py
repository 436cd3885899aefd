"""Predictions made elsewhere: which file is which cell, and what becomes of what is in it."""

import json

import pytest

from longflow import imported
from longflow.errors import UserError
from longflow.jsonio import dump_line, read_jsonl

CELLS = [("a", "16k"), ("a", "32k"), ("b", "16k")]


def touch(folder, *names):
    for name in names:
        (folder / name).write_text("")
    return str(folder)


def find(path, cells=CELLS, pattern=None, benchmark="lveval", lengths=("16k", "32k"), single=False):
    patterns = [pattern] if pattern else imported.default_patterns(lengths, benchmark, single)
    return {cell: name.rsplit("/", 1)[-1] for cell, name in imported.find(path, patterns, cells, "models.m").items()}


def test_names_of_the_references(tmp_path):
    path = touch(tmp_path, "a_16k.jsonl", "b_16k.jsonl", "result.json", "c_16k.jsonl", "a.jsonl", "a_e.jsonl")
    assert find(path) == {("a", "16k"): "a_16k.jsonl", ("b", "16k"): "b_16k.jsonl"}
    full = [("a", "full"), ("b", "full")]
    assert find(path, full, lengths=["full"], benchmark="longbench") == {("a", "full"): "a.jsonl"}
    assert find(path, full, lengths=["full"], benchmark="longbench_e") == {("a", "full"): "a_e.jsonl"}


def test_a_single_file_for_a_benchmark_of_one(tmp_path):
    path = touch(tmp_path, "anything.jsonl")
    one = [("v2", "full")]
    assert find(path, one, lengths=["full"], single=True) == {one[0]: "anything.jsonl"}
    assert find(f"{path}/anything.jsonl", one, single=True) == {one[0]: "anything.jsonl"}
    with pytest.raises(UserError, match=r"anything\.jsonl is one file, and 3 cells are asked for"):
        find(f"{path}/anything.jsonl")


def test_patterns_take_suffixes(tmp_path):
    path = touch(tmp_path, "a-16k.run1.jsonl", "b-16k.run1.jsonl", "a-32k.run2.jsonl")
    assert find(path, pattern="{dataset}-{length}.run1.jsonl") == {
        ("a", "16k"): "a-16k.run1.jsonl",
        ("b", "16k"): "b-16k.run1.jsonl",
    }
    assert len(find(path, pattern="{dataset}-{length}.*.jsonl")) == 3


def test_two_files_for_a_cell_are_an_error(tmp_path):
    path = touch(tmp_path, "a-16k.1.jsonl", "a-16k.2.jsonl")
    with pytest.raises(UserError, match=r"2 files for a/16k \(a-16k\.1\.jsonl, a-16k\.2\.jsonl\)"):
        find(path, pattern="{dataset}-{length}.*.jsonl")


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"models\.m\.path: .*/none: no such folder or file"):
        find(str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"has no predictions: no file is named \{dataset\}_\{length\}\.jsonl"):
        find(touch(tmp_path, "x.txt"))


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("x/{dataset}.jsonl", "names files, not folders"),
        ("*.jsonl", "does not name {dataset}"),
        ("{dataset}{size}.jsonl", "names {size}; only {dataset} and {length} are known"),
    ],
)
def test_a_pattern_that_cannot_be_meant(pattern, words):
    assert words in imported.pattern_error(pattern, 2)
    assert imported.pattern_error("{dataset}_{length}*.jsonl", 2) is None


def test_rows_are_taken_as_they_are_and_counted(tmp_path):
    rows = [
        {"pred": "x", "answers": ["y"]},
        {"pred": "x", "answers": ["y"]},
        {"error": "refused"},
        {"pred": " ", "n": 1},
    ]
    (tmp_path / "in.jsonl").write_text("".join(map(dump_line, rows)) + "\n")
    counts = imported.take(str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), 3, "cell")
    assert counts == {"expected": 3, "found": 4, "distinct": 3, "without_pred": 1}
    assert list(read_jsonl(tmp_path / "out.jsonl")) == rows


def test_an_empty_file_is_taken_and_a_torn_line_is_named(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    assert imported.take(str(tmp_path / "empty.jsonl"), str(tmp_path / "o.jsonl"), 3, "cell")["found"] == 0
    (tmp_path / "torn.jsonl").write_text('{"pred": "a"}\n{"pred": ')
    with pytest.raises(UserError, match=r"torn\.jsonl, line 2: not JSON"):
        imported.take(str(tmp_path / "torn.jsonl"), str(tmp_path / "p.jsonl"), 3, "cell")
    assert not (tmp_path / "p.jsonl").exists()


def config_of(path, benchmark, **options):
    return {
        "run": {"benchmarks": [benchmark], "models": ["theirs"]},
        "benchmarks": {benchmark: options} if options else {},
        "models": {"theirs": {"engine": "imported", "path": str(path)}},
    }


@pytest.mark.slow
def test_lveval_predictions_through_the_workflow(workflow, shared):
    expected = json.loads((shared / "cases/lveval/variants/expected.json").read_text())
    for name in ("00", "11"):
        workflow.config = config_of(shared / "cases/lveval/variants" / name, "lveval")
        workflow.config["run"]["results"] = f"results{name}"
        run = workflow.run("tables")
        assert "theirs has no predictions for 54 cells of lveval" in run.text
        assert run.jobs == {"import_predictions": 1, "score": 1, "table": 1, "leaderboard": 1}
        tables = workflow.folder / f"results{name}/tables/lveval/theirs/full"
        assert json.loads((tables / "result.json").read_text()) == {"hotpotwikiqa_mixup_16k": expected[name]}
        protocol = json.loads((tables / "protocol.json").read_text())
        assert (protocol["records"]["found"], protocol["records"]["expected"]) == (83, 124)
        assert len(protocol["absent"]) == 54
        log = (workflow.folder / f"results{name}/logs/import/lveval/theirs/full/hotpotwikiqa_mixup/16k.log").read_text()
        assert "expected 124, found 83, 83 distinct" in log
        assert workflow.run("tables").jobs == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral", "llama3.1-8b-instruct"])
def test_longbench_predictions_through_the_workflow(workflow, shared, name):
    folder = shared / "cases/longbench" / name
    expected = {k: v["difflib"] for k, v in json.loads((folder / "expected.json").read_text()).items()}
    workflow.config = config_of(folder, "longbench")
    workflow.run()
    text = (workflow.folder / "results/tables/longbench/theirs/full/result.json").read_text()
    assert json.loads(text) == expected
    assert len(expected) == 21


@pytest.mark.slow
def test_longbench_e_predictions_through_the_workflow(workflow, shared):
    (folder,) = (shared / "cases/longbench_e").iterdir()
    workflow.config = config_of(folder, "longbench_e")
    workflow.run()
    text = (workflow.folder / "results/tables/longbench_e/theirs/full/result.json").read_text()
    assert json.loads(text) == json.loads((folder / "expected.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["oneshot", "cot", "quotes", "quotes_chunked"])
def test_longbench_v2_predictions_through_the_workflow(workflow, shared, name):
    folder = shared / "cases/longbench_v2/predictions"
    head, *rows = (line.split("\t") for line in (folder / "expected_result.txt").read_text().splitlines())
    expected = next(dict(zip(head[1:], row[1:], strict=True)) for row in rows if row[0] == name)
    errors = int(expected.pop("Errors"))
    workflow.config = config_of(folder / f"{name}.jsonl", "longbench_v2")
    workflow.run()
    result = json.loads((workflow.folder / "results/tables/longbench_v2/theirs/full/result.json").read_text())
    wanted = {key: None if value == "none" else float(value) for key, value in expected.items()}
    assert {key: result[key] for key in wanted} == wanted
    protocol = json.loads((workflow.folder / "results/tables/longbench_v2/theirs/full/protocol.json").read_text())
    assert protocol["records"]["failed"] == errors
