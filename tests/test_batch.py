"""Cells dealt into jobs, and a cell dealt over jobs: the same bytes, and nothing computed twice."""

import subprocess
import sys
from collections import Counter

import pytest
from conftest import ROOT, TESTS, small_run

from longflow import config
from longflow.cells import cells
from longflow.jobs import batches

pytestmark = pytest.mark.slow

FAILING = "500_0001"
"""The end of the ids of one record in each of two cells, of which there are four with three records each."""


def results(folder):
    """The bytes of all predictions and scores, by name."""
    wanted = [*folder.glob("results/predictions/**/*.jsonl"), *folder.glob("results/scores/**/*.json*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in wanted}


def test_a_batch_loads_the_model_once_and_gives_the_same_bytes(finished, tmp_path_factory):
    whole = results(finished.folder)
    assert finished.counted()["requests"] >= 0
    finished.config["models"]["standin"]["batch"] = 1
    finished.config["run"]["results"] = "batched"
    made = finished.run("scores")
    assert made.jobs == Counter({"predict_batch_0_0": 1, "from_batch": 4, "score": 4})
    assert finished.counted() == {"loads": 1, "requests": 12}
    batched = {
        str(path.relative_to(finished.folder)).replace("batched", "results"): path.read_bytes()
        for kind in ("predictions/**/*.jsonl", "scores/**/*.json*")
        for path in finished.folder.glob(f"batched/{kind}")
    }
    assert batched == whole


def test_batch_and_shards_on_and_off_compute_nothing_again(finished):
    whole = results(finished.folder)
    finished.counted()
    model = finished.config["models"]["standin"]
    for change in ({"batch": 1}, {"batch": 2}, {"batch": None, "shards": 2}, {"shards": 3}, {"shards": 1}):
        model.update(change)
        finished.run("scores")
        assert finished.counted() == {"loads": 0, "requests": 0}, change
        assert results(finished.folder) == whole, change


def test_one_cell_of_a_batch_can_be_asked_for_and_a_new_level_runs_alone(finished):
    finished.counted()
    finished.config["models"]["standin"]["batch"] = 1
    target = "results/predictions/demo/standin/full/needle_en/250.jsonl"
    (finished.folder / target).unlink()
    finished.run(target)
    assert (finished.folder / target).exists()
    assert finished.counted() == {"loads": 0, "requests": 0}
    finished.config["benchmarks"]["demo"]["lengths"].append("700")
    finished.run("scores")
    assert finished.counted() == {"loads": 1, "requests": 6}


def test_a_cell_of_a_batch_that_fails_whole_fails_alone_and_is_tried_again(workflow, first_run):
    """Of four cells two have more failed records than allowed: the others have scores, and the next run tries again."""
    workflow.config["models"]["standin"]["batch"] = 1
    workflow.config["run"]["max_failures"] = 0
    failing = workflow.run("scores", "--keep-going", check=False, STANDIN_FAIL=FAILING)
    assert failing.status == 1
    assert "more than run.max_failures: 0" in failing.text
    scored = {str(path.relative_to(workflow.folder)) for path in workflow.folder.glob("results/scores/**/*.json")}
    assert len(scored) == 2
    asked = workflow.counted()["requests"]
    again = workflow.run("scores")
    assert again.jobs["predict_batch_0_0"] == 1
    assert workflow.counted() == {"loads": 1, "requests": 12 - asked}
    assert results(workflow.folder) == results(first_run[0])


def test_shards_that_fail_too_often_are_tried_again(workflow):
    workflow.config["models"]["standin"]["shards"] = 3
    workflow.config["benchmarks"]["demo"] |= {"datasets": ["needle_en"], "lengths": ["250"]}
    workflow.config["run"]["max_failures"] = 1
    failing = workflow.run("scores", "--keep-going", check=False, STANDIN_FAIL="")
    assert "3 records failed, more than run.max_failures: 1" in failing.text
    assert not (workflow.folder / "results/predictions/demo/standin/full/needle_en/250.jsonl").exists()
    assert workflow.counted()["requests"] == 0
    workflow.run("scores")
    assert workflow.counted()["requests"] == 3


@pytest.mark.parametrize(("change", "loads"), [({}, 2), ({"batch": 1}, 1), ({"shards": 2}, 2)])
def test_only_what_failed_is_tried_again(workflow, first_run, change, loads):
    """The command that the log names: snakemake -R $(python -m scripts.failed)."""
    workflow.config["models"]["standin"].update(change)
    assert "scripts.failed" in workflow.run("scores", STANDIN_FAIL=FAILING).text
    failed = workflow.counted()["requests"]
    assert failed < 12
    command = [sys.executable, "-m", "scripts.failed", "--configfile", "run.yaml"]
    environment = {**workflow.environment, "PYTHONPATH": f"{ROOT}:{TESTS}"}
    named = subprocess.run(command, cwd=workflow.folder, env=environment, capture_output=True, text=True, check=True)
    assert "it was told to fail" in named.stderr
    workflow.run("scores", "-R", *named.stdout.split())
    assert workflow.counted() == {"loads": loads, "requests": 12 - failed}
    assert results(workflow.folder) == results(first_run[0])


def test_shards_share_a_cell_and_the_journal_is_where_they_meet(workflow, first_run):
    workflow.config["models"]["standin"]["shards"] = 2
    workflow.config["benchmarks"]["demo"] |= {"datasets": ["needle_en"], "lengths": ["250"]}
    made = workflow.run("scores")
    assert made.jobs == Counter({"prepare": 1, "model": 1, "predict_shard": 2, "assemble": 1, "score": 1})
    assert workflow.counted() == {"loads": 2, "requests": 3}
    name = "results/predictions/demo/standin/full/needle_en/250.jsonl"
    assert (workflow.folder / name).read_bytes() == (first_run[0] / name).read_bytes()


def test_cells_are_dealt_about_equally_and_settings_of_one_set_of_records_stay_together():
    merged = small_run()
    merged["benchmarks"]["demo"]["lengths"] = ["250", "500", "1000", "2000"]
    merged["run"]["settings"] = ["full", "blind"]
    merged["settings"] = {"blind": {"kind": "no_context"}}
    merged["models"]["standin"]["batch"] = 2
    parsed = config.parse(merged)
    dealt = batches(parsed, "standin")
    assert sorted(cell for batch in dealt for cell in batch) == sorted(cells(parsed))
    for batch in dealt:
        of_records = Counter((cell.dataset, cell.length) for cell in batch)
        assert set(of_records.values()) == {2}
    words = [sum(int(cell.length) for cell in batch) for batch in dealt]
    assert max(words) - min(words) <= 2 * 2 * 250
    assert (
        len(
            batches(
                config.parse({**merged, "models": {"standin": {**merged["models"]["standin"], "batch": 99}}}), "standin"
            )
        )
        == 8
    )
