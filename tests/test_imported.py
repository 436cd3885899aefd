"""Predictions made elsewhere: which file is which cell, and what becomes of what is in it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longflow import config, imported
from longflow.errors import UserError
from longflow.jsonio import dump_line, read_jsonl
from longflow.reasoning import Markers
from longflow.score import score_cell

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


def test_as_many_rows_are_expected_as_there_are_repeats(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(dump_line({"pred": "x", "repeat": r}) for r in (0, 1, 1)))
    assert imported.take(str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), 2, "cell")["expected"] == 4


def test_an_empty_file_is_taken_and_a_torn_line_is_named(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    assert imported.take(str(tmp_path / "empty.jsonl"), str(tmp_path / "o.jsonl"), 3, "cell")["found"] == 0
    (tmp_path / "torn.jsonl").write_text('{"pred": "a"}\n{"pred": ')
    with pytest.raises(UserError, match=r"torn\.jsonl, line 2: not JSON"):
        imported.take(str(tmp_path / "torn.jsonl"), str(tmp_path / "p.jsonl"), 3, "cell")
    assert not (tmp_path / "p.jsonl").exists()


THINK = Markers(start="<think>", end="</think>")


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        # LongBench and LV-Eval: the text of the answer is in pred.
        ({"pred": "<think>hm</think>\n\nParis", "answers": ["Paris"]}, {"pred": "Paris", "reasoning": "hm"}),
        ({"pred": "the template began it</think>Paris"}, {"pred": "Paris", "reasoning": "the template began it"}),
        ({"pred": "<think>Paris, I"}, {"pred": "", "reasoning": "Paris, I", "reasoning_closed": False}),
        (
            {"pred": "Paris, I think", "finish_reason": "length"},
            {"pred": "", "reasoning": "Paris, I think", "reasoning_closed": False},
        ),
        # A text without markers, one that was taken apart already, and rows that hold none stay as they are.
        ({"pred": " Paris\n"}, None),
        ({"pred": "Paris", "reasoning": "hm", "reasoning_closed": True, "finish_reason": "length"}, None),
        ({"pred": None}, None),
        ({"error": "timeout"}, None),
        # LongBench v2: the letter was read from the whole response.
        (
            {
                "response": "<think>The correct answer is (A)? No.</think>The correct answer is (B)",
                "pred": "A",
                "answer": "B",
                "judge": False,
            },
            {
                "response": "The correct answer is (B)",
                "pred": "B",
                "judge": True,
                "reasoning": "The correct answer is (A)? No.",
            },
        ),
        (
            {"response": "<think>The correct answer is (B)", "pred": "B", "answer": "B", "judge": True},
            {
                "response": "",
                "pred": None,
                "judge": False,
                "reasoning": "The correct answer is (B)",
                "reasoning_closed": False,
            },
        ),
        # Without `answer` the judge's word stands.
        (
            {"response": "<think>hm</think>The correct answer is (B)", "pred": "B", "judge": True},
            {"response": "The correct answer is (B)", "reasoning": "hm"},
        ),
        ({"response": "The correct answer is (B)", "pred": "B", "answer": "B"}, None),
        # A row of another benchmark may have a response of its own.
        ({"response": "raw", "pred": "<think>hm</think>x", "answers": ["x"]}, {"pred": "x", "reasoning": "hm"}),
    ],
)
def test_reasoning_is_taken_out_of_answers(row, changes):
    expected = row if changes is None else {**row, "reasoning_closed": True, **changes}
    assert imported.without_reasoning(row, THINK) == expected
    assert imported.without_reasoning(expected, THINK) == expected


def test_only_the_answer_of_an_imported_thinking_model_is_scored(tmp_path, caplog):
    thoughts = [
        "<think>The correct answer is (A).</think>The correct answer is (B)",
        "<think>The correct answer is (B)",
    ]
    rows = [{"_id": str(i), "response": text, "answer": "B", "pred": "A"} for i, text in enumerate(thoughts)]
    rows += [{"_id": "j", "response": "<think>hm</think>no letter", "judge": True}, {"_id": "e", "error": "timeout"}]
    (tmp_path / "in.jsonl").write_text("".join(map(dump_line, rows)))
    with caplog.at_level("INFO", "longflow"):
        counts = imported.take(str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), 4, "cell", THINK)
    assert (counts["reasoning"], counts["reasoning_open"]) == (3, 1)
    assert "3 with reasoning, 1 of them cut off in it" in caplog.text
    spec = {"benchmark": "longbench_v2", "model": "m", "setting": "full", "dataset": "longbench_v2", "length": "full"}
    spec |= {"metric": "choice", "language": "en", "category": "", "n_expected": 4}
    lines, summary = score_cell(read_jsonl(tmp_path / "out.jsonl"), spec)
    assert [line["score"] for line in lines] == [1.0, 0.0, 1.0, None]
    assert summary["counts"]["reasoning_open"] == 1


@given(st.text(alphabet="ab <>/think\n"), st.sampled_from(["stop", "length", None]), st.booleans())
def test_no_text_gets_lost_or_is_scored_from_within_reasoning(text, reason, of_v2):
    key = "response" if of_v2 else "pred"
    row = {key: text, "finish_reason": reason, **({"answer": "B"} if of_v2 else {})}
    taken = imported.without_reasoning(row, THINK)
    assert imported.without_reasoning(taken, THINK) == taken
    assert "</think>" not in taken[key]
    if taken != row:
        kept = taken["reasoning"] + taken[key]
        assert set("".join(kept.split())) <= set("".join(text.split()))
        assert taken["reasoning_closed"] or taken[key] == ""


def test_markers_are_a_key_of_imported_models(tmp_path):
    entries = config_of(tmp_path, "longbench")
    entries["models"]["theirs"]["reasoning"] = {"start": "<r>", "end": "</r>"}
    model = config.parse(entries).models["theirs"]
    assert model.spec()["reasoning"] == {"start": "<r>", "end": "</r>"}
    entries["models"]["theirs"]["reasoning"] = {"start": "<r>", "max_tokens": 3}
    with pytest.raises(UserError, match="reasoning"):
        config.parse(entries)


@pytest.mark.slow
def test_an_imported_thinking_model_through_the_workflow(workflow):
    texts = ["<think>The correct answer is (A).</think>The correct answer is (B)", "The correct answer is (B)"]
    rows = [
        {"_id": str(i), "response": text, "answer": "B", "repeat": r} for i, text in enumerate(texts) for r in (0, 1)
    ]
    (workflow.folder / "theirs.jsonl").write_text("".join(map(dump_line, rows)))
    workflow.config = config_of("theirs.jsonl", "longbench_v2")
    workflow.config["models"]["theirs"]["reasoning"] = {}
    workflow.run("tables")
    table = workflow.folder / "results/tables/longbench_v2/theirs/full"
    assert json.loads((table / "result.json").read_text())["Overall"] == 100.0
    protocol = json.loads((table / "protocol.json").read_text())
    assert protocol["reasoning"] == {"start": "<think>", "end": "</think>"}
    assert protocol["accuracy"]["longbench_v2/full"]["bounds"] == [round(400 / 1006, 2), 100.0]
    assert protocol["spread"]["longbench_v2/full"]["scores"] == [100.0, 100.0]


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
