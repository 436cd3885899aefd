"""The workflow as a person runs it: what runs again after which change, and what is refused.

Each test counts jobs, model loads and generated requests; the stand-in engine writes the latter two down.
"""

import json
import os
import re
import shutil
import time

import pytest
from conftest import AFTER_SCORES

pytestmark = pytest.mark.slow

NOTHING = {"loads": 0, "requests": 0}


def test_a_first_run_runs_everything_once(first_run):
    _, jobs, counted = first_run
    assert jobs == {"prepare": 4, "model": 1, "predict": 4, "score": 4, **AFTER_SCORES}
    assert counted == {"loads": 4, "requests": 12}


def results(workflow):
    """The bytes of all results that have to be equal when the same is run again."""
    kept = ("predictions", "scores", "tables", "plots", "leaderboard", "leaderboard.csv", "anatomy", "analysis")
    found = {}
    for name in kept:
        root = workflow.folder / "results" / name
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file():
                found[str(path.relative_to(workflow.folder))] = path.read_bytes()
    return found


def test_nothing_to_do(finished):
    assert finished.run().jobs == {}
    assert finished.counted() == NOTHING


def test_touching_everything_and_reordering_the_configuration_does_nothing(finished):
    for path in finished.folder.rglob("*"):
        if ".snakemake" not in path.parts:
            os.utime(path)
    finished.config = {key: finished.config[key] for key in reversed(finished.config)}
    assert finished.run().jobs == {}
    assert finished.counted() == NOTHING


def test_what_cannot_change_a_result_does_nothing(finished):
    finished.config["models"]["standin"].update(threads=2, mem_mb=500, runtime=3)
    assert finished.run().jobs == {}


def test_a_prompt_runs_its_data_set_and_back_is_free(finished):
    before = results(finished)
    finished.config["benchmarks"]["demo"]["prompts"] = {"needle_en": "{input} {context} {input}"}
    jobs = finished.run().jobs
    assert jobs == {"predict": 2, "score": 2, **AFTER_SCORES}
    assert finished.counted() == {"loads": 2, "requests": 6}
    del finished.config["benchmarks"]["demo"]["prompts"]
    assert finished.run().jobs["predict"] == 2
    assert finished.counted() == NOTHING
    assert results(finished) == before


def test_a_metric_option_runs_no_model(finished):
    finished.config["benchmarks"]["demo"]["rouge_overflow"] = "exact"
    jobs = finished.run().jobs
    assert jobs == {"score": 4, **AFTER_SCORES}
    assert finished.counted() == NOTHING


def test_an_added_level_runs_only_its_cells(finished):
    finished.config["benchmarks"]["demo"]["lengths"].append("300")
    jobs = finished.run().jobs
    assert jobs == {"prepare": 2, "predict": 2, "score": 2, **AFTER_SCORES}
    assert finished.counted() == {"loads": 2, "requests": 6}


def test_an_added_model_runs_only_its_cells(finished):
    finished.config["run"]["models"].append("other")
    jobs = finished.run().jobs
    assert jobs == {"model": 1, "predict": 4, "score": 4, **AFTER_SCORES}
    assert finished.counted() == {"loads": 4, "requests": 12}


def test_a_removed_model_runs_no_model(finished):
    finished.config["run"]["models"].append("other")
    finished.run()
    finished.counted()
    finished.config["run"]["models"].pop()
    jobs = finished.run().jobs
    assert jobs == {"leaderboard": 1, "plot_demo": 1, "plot_records_demo": 1, "analysis": 1}
    assert finished.counted() == NOTHING


def test_a_changed_sample_generates_only_what_is_new(finished):
    finished.config["run"]["limit"] = 2
    jobs = finished.run().jobs
    assert jobs == {"predict": 4, "score": 4, **AFTER_SCORES}
    assert finished.counted() == NOTHING
    del finished.config["run"]["limit"]
    finished.config["benchmarks"]["demo"]["records"] = 4
    assert finished.run().jobs["prepare"] == 4
    # Single-hop records stand as they were and one is new in each cell. Needles move to other places.
    assert 4 <= finished.counted()["requests"] <= 10


def test_deleted_predictions_come_back_from_the_journal(finished):
    before = results(finished)
    shutil.rmtree(finished.folder / "results/predictions")
    shutil.rmtree(finished.folder / "results/scores")
    assert finished.run().jobs == {}  # the tables are there
    assert finished.run("scores").jobs == {"predict": 4, "score": 4}
    finished.run()
    assert finished.counted() == NOTHING
    assert results(finished) == before


def test_lost_metadata_alone_does_nothing(finished):
    shutil.rmtree(finished.folder / ".snakemake")
    assert finished.run().jobs == {}


def test_lost_metadata_and_a_changed_prompt_is_found_out(finished):
    shutil.rmtree(finished.folder / ".snakemake")
    finished.config["benchmarks"]["demo"]["prompts"] = {"needle_en": "{input} {context} {input}"}
    jobs = finished.run().jobs
    assert jobs == {"predict": 2, "score": 2, **AFTER_SCORES}
    assert finished.counted() == {"loads": 2, "requests": 6}
    assert finished.run().jobs == {}


def test_lost_metadata_and_a_changed_metric_or_seed_is_found_out(finished):
    shutil.rmtree(finished.folder / ".snakemake")
    finished.config["benchmarks"]["demo"]["rouge_overflow"] = "exact"
    assert finished.run().jobs == {"score": 4, **AFTER_SCORES}
    shutil.rmtree(finished.folder / ".snakemake")
    finished.config["benchmarks"]["demo"]["seed"] = 7
    assert finished.run().jobs["prepare"] == 4


def test_moved_results_are_known_and_judged_by_the_configuration(finished, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "run"
    shutil.copytree(finished.folder, elsewhere, ignore=shutil.ignore_patterns(".snakemake"))
    shutil.rmtree(finished.folder / "results")
    finished.folder = elsewhere
    run = finished.run()
    assert finished.counted() == NOTHING
    finished.config["benchmarks"]["demo"]["prompts"] = {"needle_en": "{input} {context} {input}"}
    run = finished.run()
    assert run.jobs["predict"] == 2
    assert finished.counted() == {"loads": 2, "requests": 6}


def test_restored_results_of_another_configuration_are_found_out(finished):
    """Snakemake remembers the run with the other prompt and would take the restored files for its own."""
    before = results(finished)
    shutil.copytree(finished.folder / "results", finished.folder / "kept")
    finished.config["benchmarks"]["demo"]["prompts"] = {"needle_en": "{input} {context} {input}"}
    finished.run()
    other = results(finished)
    assert other != before
    shutil.rmtree(finished.folder / "results")
    shutil.copytree(finished.folder / "kept", finished.folder / "results")
    assert finished.run("-n").jobs["predict"] == 2
    finished.run()
    assert results(finished) == other
    assert finished.run().jobs == {}


def test_two_runs_that_share_their_resources_do_not_take_each_other_s_records(finished, tmp_path_factory):
    shared = str(finished.folder / "resources")
    finished.config["run"]["resources"] = shared
    finished.run()
    first = results(finished)
    second = type(finished)(tmp_path_factory.mktemp("second"), {**finished.config})
    second.config["benchmarks"] = {"demo": {**finished.config["benchmarks"]["demo"], "seed": 2}}
    second.run()
    finished.counted()
    finished.config["run"]["models"] = ["standin", "other"]
    assert finished.run().jobs["prepare"] == 4
    assert finished.counted() == {"loads": 4, "requests": 12}  # the new model's; the old one's come from the journal
    ours = "results/predictions/demo/standin/full/needle_en/250.jsonl"
    assert results(finished)[ours] == first[ours]


def test_a_look_at_another_configuration_changes_nothing(finished):
    finished.config["benchmarks"]["demo"]["prompts"] = {"needle_en": "{input} {context} {input}"}
    stamps = {path: path.stat().st_mtime for path in finished.folder.glob("results/**/*") if path.is_file()}
    assert finished.run("-n").jobs["predict"] == 2
    del finished.config["benchmarks"]["demo"]["prompts"]
    assert finished.run().jobs == {}
    for path, stamp in stamps.items():
        assert abs(path.stat().st_mtime - stamp) < 5


def test_snakemake_s_report_holds_tables_and_plots_and_loads_nothing_from_elsewhere(finished):
    finished.run("--report", "report.html")
    page = (finished.folder / "report.html").read_text(encoding="utf-8")
    for words in ("score by length per dataset", "bars per task type", "leaderboard, long form", "Plots", "Tables"):
        assert words in page
    assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="https?://', page)


def test_folders_with_spaces_and_chinese(tmp_path, workflow):
    workflow.folder = tmp_path / "a folder 文件夹 'quoted'"
    workflow.folder.mkdir()
    workflow.config["run"].update(results="my results/第一", resources="my resources", journal="the journal")
    workflow.config["benchmarks"]["demo"]["prompts"] = {"needle_en": "$HOME `{input}` 'it''s' \"{context}\" 中文\n\\"}
    assert workflow.run().jobs["predict"] == 4
    assert (workflow.folder / "my results/第一/leaderboard.csv").exists()
    assert workflow.run().jobs == {}


def test_the_same_run_twice_gives_the_same_bytes(finished, tmp_path_factory):
    before = results(finished)
    again = tmp_path_factory.mktemp("again")
    finished.folder = again
    finished.run()
    assert results(finished) == before


def test_a_stopped_run_goes_on_where_it_was(workflow):
    import signal
    import subprocess

    process = subprocess.Popen(
        workflow.command("predictions"),
        cwd=workflow.folder,
        env={**workflow.environment, "STANDIN_DELAY": "0.5"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if workflow.count_file.exists() and workflow.count_file.read_text().count("request") >= 4:
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.2)
    done = workflow.counted()["requests"]
    assert 4 <= done < 12
    workflow.run("--unlock")
    workflow.run()
    # Two jobs ran side by side: each loses at most the request it was at.
    assert workflow.counted()["requests"] <= 12 - done + 2


def test_targets_by_name(workflow):
    assert workflow.run("download", "-n").jobs == {"prepare": 4, "model": 1}
    assert workflow.run("predictions", "-n").jobs == {"prepare": 4, "model": 1, "predict": 4}
    assert workflow.run("scores", "-n").jobs["score"] == 4
    assert workflow.run("tables", "-n").jobs["leaderboard"] == 1
    assert workflow.run("plots", "-n").jobs["plot_demo"] == 1
    one = "results/scores/demo/standin/full/needle_en/250.json"
    assert workflow.run(one, "-n").jobs == {"prepare": 1, "model": 1, "predict": 1, "score": 1}


def test_a_bad_configuration_is_one_line_before_any_job(workflow):
    workflow.config["models"]["standin"]["chatt"] = "x"
    run = workflow.run(check=False)
    assert run.status == 1
    assert "models.standin: unknown key 'chatt'; did you mean 'chat'?" in run.text
    assert "Traceback" not in run.text
    assert not (workflow.folder / "results").exists()


def test_a_failed_cell_names_its_fault_and_loses_no_other(workflow):
    workflow.config["benchmarks"]["demo"]["prompts"] = {"needle_en": "{language} {context}"}
    workflow.run("download")
    path = workflow.folder / "resources/records/demo/needle_en/500.jsonl"
    path.write_text(path.read_text().replace('"language"', '"tongue"'), encoding="utf-8")
    run = workflow.run(check=False)
    assert run.status == 1
    assert "error: resources/records/demo/needle_en/500.jsonl, record needle_en_500_0000" in run.text
    assert len(list((workflow.folder / "results/predictions").rglob("*.jsonl"))) == 3


def test_a_failing_record_fails_no_cell(workflow):
    workflow.config["models"]["standin"]["options"] = {"fail": "_0001"}
    said = workflow.run().text
    assert "4 records in 4 cells failed and count 0" in said
    score = json.loads((workflow.folder / "results/scores/demo/standin/full/needle_en/250.json").read_text())
    assert score["counts"]["failed"] == 1
    protocol = json.loads((workflow.folder / "results/tables/demo/standin/full/protocol.json").read_text())
    assert protocol["records"]["failed"] == 4
    assert protocol["records"]["expected"] == 12
    board = (workflow.folder / "results/leaderboard/demo.csv").read_text().splitlines()
    assert dict(zip(board[0].split(","), board[1].split(","), strict=True))["failed"] == "4"
    workflow.counted()
    workflow.config["models"]["standin"]["options"] = {"fail": "_none"}
    workflow.run()  # another engine option is another model: everything is asked again
    assert workflow.counted()["requests"] == 12


def test_failed_records_are_tried_again_by_name_and_nothing_else_is(workflow):
    workflow.environment["STANDIN_FAIL"] = "_0001"
    workflow.run()
    assert workflow.counted()["requests"] == 8
    del workflow.environment["STANDIN_FAIL"]
    workflow.run("-R", "predict", "predict_api", "--")
    assert workflow.counted()["requests"] == 4
    assert "and count 0" not in workflow.run().text


class TestLimits:
    """GPUs on one machine: counted by --resources, dealt out by the lease."""

    @pytest.fixture
    def gpus(self, workflow):
        workflow.config["models"]["standin"]["gpu"] = 1
        workflow.config["models"]["other"]["gpu"] = 2
        return workflow

    def test_a_missing_limit_is_refused_before_any_job(self, gpus):
        run = gpus.run(check=False)
        assert run.status == 1
        assert "--resources does not say how many gpu there are, and standin needs 1: add gpu=N" in run.text
        assert gpus.counted() == NOTHING

    def test_a_limit_that_is_too_small_is_refused(self, gpus):
        gpus.config["run"]["models"] = ["standin", "other"]
        run = gpus.run("--resources", "gpu=1", check=False)
        assert run.status == 1
        assert "--resources gpu=1, but other needs 2" in run.text

    def test_what_needs_no_gpu_is_not_refused(self, gpus):
        gpus.run("download")
        gpus.run("--resources", "gpu=4", CUDA_VISIBLE_DEVICES="0,1,2,3")
        (gpus.folder / "results/tables/demo/standin/full/result.json").unlink()
        assert gpus.run("tables").jobs == {"table": 1}
        assert gpus.run("plots").jobs == {}

    def test_no_device_is_used_by_two_jobs_at_once(self, gpus, tmp_path):
        gpus.config["run"]["models"] = ["standin", "other"]
        gpus.config["models"]["other"]["options"] = {"name": "other"}
        log = tmp_path / "devices"
        run = gpus.run(
            "--resources", "gpu=4", cores=8, CUDA_VISIBLE_DEVICES="0,1,2,3", TMPDIR=str(tmp_path),
            STANDIN_DEVICES=str(log), STANDIN_DELAY="0.1",
        )  # fmt: skip
        assert run.jobs["predict"] == 8
        held, most = {}, 0
        for line in sorted(log.read_text().splitlines(), key=lambda line: float(line.split()[2])):
            what, devices, _, name = line.split()
            for device in devices.split(","):
                if what == "start":
                    assert device not in held, f"{name} and {held[device]} both have {device}"
                    held[device] = name
                    most = max(most, len(held))
                else:
                    del held[device]
            if "other" in name:
                assert len(devices.split(",")) == 2
        assert most > 1

    def test_api_calls_are_limited_likewise(self, workflow):
        workflow.config["models"]["standin"]["api_calls"] = 4
        run = workflow.run(check=False)
        assert "--resources does not say how many api_calls there are, and standin needs 4" in run.text
        assert workflow.run("--resources", "api_calls=4").jobs["predict_api"] == 4
