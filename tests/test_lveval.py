"""LV-Eval's own layouts: what its files look like on the way in, and its results on the way out."""

import json
import os
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT, TESTS
from helpers_hub import FakeHub

from longflow import benchmarks
from longflow.benchmarks.lveval import Options, prepare, prompt_limit, result_csv, result_json, sources
from longflow.errors import UserError
from longflow.jsonio import dump_line
from longflow.score import score_cell

TASK = benchmarks.load("lveval").task("loogle_CR_mixup")
GOLDEN = json.loads((TESTS / "data/golden_vectors.json").read_text(encoding="utf-8"))


def row(index, **changes):
    made = {
        "input": f"question {index // 2}?", "context": f"一 context {index}", "answers": ["yes", "no"], "length": 3,
        "dataset": "loogle_CR_mixup", "language": "en", "answer_keywords": "yes", "confusing_facts": ["not so"],
    }  # fmt: skip
    return {**made, **changes}


def lines(count=TASK.n, **changes):
    return "".join(dump_line(row(i, **changes)) for i in range(count))


def read(path):
    return list(prepare(TASK, "16k", Options(), [str(path)]))


@pytest.mark.parametrize("layout", ["flat", "folders", "zip"])
def test_either_local_layout_and_the_archive_give_the_same_records(tmp_path, layout):
    name = "loogle_CR_mixup_16k.jsonl"
    if layout == "flat":
        (tmp_path / name).write_text(lines(), encoding="utf-8")
    elif layout == "folders":
        (tmp_path / "loogle_CR_mixup").mkdir()
        (tmp_path / "loogle_CR_mixup" / name).write_text(lines(), encoding="utf-8")
    else:
        with zipfile.ZipFile(tmp_path / "loogle_CR_mixup.zip", "w") as archive:
            archive.writestr(f"loogle_CR_mixup/{name}", lines())
            archive.writestr("loogle_CR_mixup/loogle_CR_mixup_32k.jsonl", "")
    found = sources(TASK, "16k", Options(source=str(tmp_path)), "resources")
    records = list(prepare(TASK, "16k", Options(), found))
    assert len(records) == 99
    assert records[7].id == "loogle_CR_mixup_16k_0007"
    assert records[6].question_id == records[7].question_id != records[8].question_id
    assert records[7].fields == row(7)


def test_hub_files_are_expected_where_they_are_downloaded():
    assert sources(TASK, "16k", Options(), "R") == ["R/downloads/lveval/loogle_CR_mixup.zip"]


def test_what_is_missing_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(UserError) as caught:
        sources(TASK, "16k", Options(source=str(tmp_path)), "resources")
    text = str(caught.value)
    assert "no records of loogle_CR_mixup at 16k" in text
    assert f"{tmp_path}/loogle_CR_mixup_16k.jsonl" in text
    assert f"{tmp_path}/loogle_CR_mixup/loogle_CR_mixup_16k.jsonl" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lines(98), "98 records, but loogle_CR_mixup has 99 at 16k; the file is not whole"),
        (lines(100), "100 records, but loogle_CR_mixup has 99"),
        ("", "0 records, but loogle_CR_mixup has 99"),
        (lines(3) + '{"input": "torn', "line 4: not JSON"),
        (lines(2) + "[1]\n", "line 3: a JSON object was expected, found list"),
        (lines(2) + dump_line(row(2, context=None)), "record 3: 'context' should be a str, found NoneType"),
        (lines(2) + dump_line(row(2, answers="x")), "record 3: 'answers' should be a list, found str"),
        (lines(2) + dump_line(row(2, answers=[1])), "record 3: 'answers' should be a list of strings"),
        (lines(2) + dump_line(row(2, answer_keywords=["x"])), "record 3: 'answer_keywords' should be text, found list"),
        (lines(2) + dump_line(row(2, length=3)).replace('"length": 3', '"length": NaN'), "line 3: NaN is not JSON"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_record(tmp_path, content, words):
    path = tmp_path / "loogle_CR_mixup_16k.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_bad_archive_is_refused(tmp_path):
    torn = tmp_path / "torn.zip"
    torn.write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(UserError, match=r"torn\.zip: not a readable zip archive"):
        read(torn)
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "x")
    with pytest.raises(UserError, match=r"holds no loogle_CR_mixup_16k\.jsonl; it has readme\.txt"):
        read(other)


def test_results_are_the_reference_s_byte_for_byte():
    """Predictions of the reference's own evaluation run, scored and laid out here."""
    golden = GOLDEN["lveval_end_to_end"]
    summaries = []
    for name, rows in golden["files"].items():
        dataset, length = name.removesuffix(".jsonl").rsplit("_", 1)
        task = benchmarks.load("lveval").task(dataset)
        spec = {
            "benchmark": "lveval", "model": "m", "setting": "full", "dataset": dataset, "length": length,
            "metric": task.metric, "language": task.language, "category": task.category, "n_expected": task.n,
            "rouge_overflow": "reference", "answers": "first", "code": "",
        }  # fmt: skip
        summaries.append(score_cell(rows, spec)[1])
    assert result_json(summaries) == golden["result_json"]
    # The columns stand by length here, by first appearance there; all else is the same text.
    ours, theirs = (table(text) for text in (result_csv(summaries), golden["result_csv"]))
    assert result_csv(summaries).splitlines()[0] == "dataset_name,16k,32k,64k,128k,256k"
    assert ours == theirs


def table(text):
    """A CSV as {row name: {column: text}}, rows in order."""
    head, *body = (line.split(",") for line in text.rstrip("\n").split("\n"))
    return [(first, dict(sorted(zip(head[1:], rest, strict=True)))) for first, *rest in body]


def test_prompt_limit_of_a_small_window_is_never_more_than_the_window():
    for window in range(512, 300_000, 511):
        assert prompt_limit(window) < window


def test_an_archive_damaged_inside_is_refused(tmp_path):
    path = tmp_path / "loogle_CR_mixup.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("loogle_CR_mixup_16k.jsonl", lines())
    whole = bytearray(path.read_bytes())
    for place in range(400, 460):
        whole[place] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"loogle_CR_mixup\.zip:loogle_CR_mixup_16k\.jsonl"):
        read(path)


REVISION = "86a3b0e6f2266281d481bcb46a0bda5b511cffb0"


@pytest.fixture
def hub(tmp_path):
    """LV-Eval's hub data set with one of its archives."""
    path = tmp_path / "made.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("loogle_CR_mixup/loogle_CR_mixup_16k.jsonl", lines())
    made = FakeHub({"loogle_CR_mixup.zip": path.read_bytes()}, "Infinigence/LVEval", "datasets", REVISION)
    yield made
    made.close()


def hub_environment(hub, folder):
    """The environment of a process that takes this hub for the real one."""
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}


@pytest.mark.slow
def test_download_takes_the_files_of_the_hub_at_the_pinned_revision(workflow, hub):
    workflow.config = {
        "run": {"benchmarks": ["lveval"], "models": ["standin"]},
        "benchmarks": {"lveval": {"datasets": ["loogle_CR_mixup"], "lengths": ["16k"]}},
        "models": workflow.config["models"],
    }
    run = workflow.run("download", **hub_environment(hub, workflow.folder))
    assert run.jobs == {"fetch_lveval": 1, "prepare": 1, "model": 1}
    assert len((workflow.folder / "resources/records/lveval/loogle_CR_mixup/16k.jsonl").read_text().splitlines()) == 99
    assert hub.fetched == ["loogle_CR_mixup.zip"]
    assert not [path for path in (workflow.folder / "resources/downloads/lveval").iterdir() if path.suffix != ".zip"]
    hub.close()
    # From here on no network is needed.
    workflow.run()
    result = json.loads((workflow.folder / "results/tables/lveval/standin/full/result.json").read_text())
    assert list(result) == ["loogle_CR_mixup_16k"]


def test_what_the_hub_has_not_is_one_line_and_leaves_nothing(tmp_path, hub):
    spec = json.dumps({"hub": "Infinigence/LVEval", "revision": REVISION, "file": "cmrc_mixup.zip"})
    command = [
        "-m",
        "scripts.download",
        "--spec",
        spec,
        "--output",
        str(tmp_path / "x" / "c.zip"),
    ]
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **hub_environment(hub, tmp_path)},
    )
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: cmrc_mixup.zip of the hub data set Infinigence/LVEval at 86a3b0e")
    assert "name a folder in source" in last
    assert list((tmp_path / "x").iterdir()) == []
