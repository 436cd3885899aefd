"""Cells dealt into jobs, and a cell dealt over jobs: the same bytes, and nothing computed twice."""

from collections import Counter

import pytest
from conftest import small_run

from longflow import config
from longflow.cells import cells
from longflow.jobs import batches

pytestmark = pytest.mark.slow


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
    assert made.jobs == Counter({"predict_batch_0_0": 1, "score": 4})
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
