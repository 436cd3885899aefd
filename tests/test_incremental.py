"""More of what runs again after which change: jobs, model loads and generated requests counted, as in test_workflow."""

import shutil

import pytest
from conftest import AFTER_SCORES, Workflow, small_run

pytestmark = pytest.mark.slow

NOTHING = {"loads": 0, "requests": 0}


def predictions(folder, results="results"):
    """The bytes of all predictions by cell."""
    root = folder / results / "predictions"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.jsonl"))}


def test_another_prompt_limit_asks_only_what_it_cuts_otherwise(finished):
    """Tokens are words: at 250 words no prompt reaches 400 tokens, at 500 each does."""
    before = predictions(finished.folder)
    model = finished.config["models"]["standin"]
    model["max_prompt_tokens"] = 400
    assert finished.run("predictions").jobs == {"predict": 4}
    assert finished.counted() == {"loads": 2, "requests": 6}
    cut = predictions(finished.folder)
    assert {name for name in cut if cut[name] != before[name]} == {name for name in cut if name.endswith("500.jsonl")}
    model["max_prompt_tokens"] = {"demo": 3000}
    assert finished.run("predictions").jobs == {"predict": 4}
    assert finished.counted() == NOTHING
    assert predictions(finished.folder) == before
    shutil.rmtree(finished.folder / ".snakemake")
    model["max_prompt_tokens"] = 400
    assert finished.run("predictions").jobs == {"predict": 4}
    assert finished.counted() == NOTHING
    assert predictions(finished.folder) == cut


def test_another_sample_and_back_is_free(finished):
    before = predictions(finished.folder)
    options = finished.config["benchmarks"]["demo"]
    options["seed"] = 7
    assert finished.run("predictions").jobs == {"prepare": 4, "predict": 4}
    assert finished.counted() == {"loads": 4, "requests": 12}
    del options["seed"]
    assert finished.run("predictions").jobs == {"prepare": 4, "predict": 4}
    assert finished.counted() == NOTHING
    assert predictions(finished.folder) == before
    finished.config["run"]["limit"] = 1
    options["datasets"] = ["singlehop_en"]
    assert finished.run("predictions").jobs == {"predict": 2}
    assert finished.counted() == NOTHING


def test_more_gpus_or_another_partition_run_nothing(finished):
    model = finished.config["models"]["standin"]
    model.update(gpu=2, threads=3, runtime={"250": 7}, slurm={"partition": "gpu", "gpu_model": "h200"})
    assert finished.run("--resources", "gpu=2").jobs == {}
    model.update(gpu=4)
    assert finished.run("--resources", "gpu=4").jobs == {}
    # What is asked for now is heard all the same: a cell that is missing needs its devices.
    (finished.folder / "results/predictions/demo/standin/full/needle_en/250.jsonl").unlink()
    assert "standin needs 4" in finished.run("predictions", "--resources", "gpu=2", check=False).text
    devices = {"CUDA_VISIBLE_DEVICES": "0,1,2,3", "TMPDIR": str(finished.folder)}
    assert finished.run("predictions", "--resources", "gpu=4", **devices).jobs == {"predict": 1}
    assert finished.counted() == NOTHING


def test_results_under_another_name_are_known_there(finished):
    before = predictions(finished.folder)
    (finished.folder / "results").rename(finished.folder / "kept")
    finished.config["run"]["results"] = "kept"
    assert finished.run().jobs == {}
    assert finished.counted() == NOTHING
    # Without .snakemake as well, and with another metric option: no model is loaded.
    shutil.rmtree(finished.folder / ".snakemake")
    finished.config["benchmarks"]["demo"]["rouge_overflow"] = "exact"
    assert finished.run().jobs == {"score": 4, **AFTER_SCORES}
    assert finished.counted() == NOTHING
    assert predictions(finished.folder, "kept") == before


def test_a_new_results_folder_is_filled_from_the_journal(finished):
    before = predictions(finished.folder)
    finished.config["run"].update(results="second", journal="results/journal")
    assert finished.run("predictions").jobs == {"predict": 4}
    assert finished.counted() == NOTHING
    assert predictions(finished.folder, "second") == before


def test_journals_of_two_people_are_one_when_they_lie_in_one_folder(tmp_path, first_run):
    people = []
    for name, change in (
        ("ada", {"lengths": ["250"]}),
        ("ben", {"datasets": ["needle_en"], "records": 3, "prompts": {}}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        one = Workflow(folder, small_run())
        one.config["benchmarks"]["demo"].update(change)
        one.config["run"].update(results=f"{name}-results", resources=f"{name}-resources", journal=f"{name}-journal")
        if name == "ben":
            one.config["run"]["limit"] = 2
        one.run("predictions")
        people.append(one)
    assert people[0].counted() == {"loads": 2, "requests": 6}
    assert people[1].counted() == {"loads": 2, "requests": 4}
    both = Workflow(tmp_path / "both", small_run())
    for one, name in zip(people, ("ada", "ben"), strict=True):
        shutil.copytree(one.folder / f"{name}-journal", both.folder / "results/journal", dirs_exist_ok=True)
    assert both.run("predictions").jobs == {"prepare": 4, "model": 1, "predict": 4}
    # At 500 words: all of single-hop, and the needle that neither had asked for.
    assert both.counted() == {"loads": 2, "requests": 4}
    assert predictions(both.folder) == predictions(first_run[0])
    shutil.rmtree(both.folder / "results/predictions")
    both.run("predictions")
    assert both.counted() == NOTHING
