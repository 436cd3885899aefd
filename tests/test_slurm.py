"""Runs on a real SLURM: one node with four GPUs that are none, started and stopped by the tests.

No accounting database stands behind it, so Snakemake asks squeue for the state of jobs, and after seconds instead of
its usual forty. All else is profiles/slurm as it is.
"""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
import time

import pytest
import yaml
from cluster import GPUS, Cluster, why_not
from conftest import ROOT, TESTS, Run, Workflow

from longflow import config
from longflow.errors import UserError
from longflow.slurm import resources

on_slurm = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture(scope="session")
def cluster():
    """SLURM, up for the tests of this module."""
    reason = why_not()
    if reason is None and importlib.util.find_spec("snakemake_executor_plugin_slurm") is None:
        reason = "Snakemake's plugin for SLURM is not installed: pip install -r requirements-slurm.txt"
    if reason is not None:
        pytest.skip(reason)
    with Cluster() as running:
        yield running


class SlurmWorkflow(Workflow):
    """A workflow that is run through the cluster."""

    def __init__(self, folder, settings, cluster):
        super().__init__(folder, settings)
        self.cluster = cluster
        paths = [str(TESTS), str(TESTS / "slurm"), os.environ.get("PYTHONPATH", "")]
        self.environment["PYTHONPATH"] = ":".join(filter(None, paths))
        self.environment["STANDIN_DEVICES"] = str(folder / "devices")

    def command(self, *arguments, cores=None):
        """The command line that a person types, and what this cluster needs."""
        (self.folder / "run.yaml").write_text(yaml.safe_dump(self.config), encoding="utf-8")
        profile = ["--workflow-profile", str(ROOT / "profiles/slurm"), "--latency-wait", "10"]
        site = ["--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"]
        base = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "run.yaml"]
        return [*base, *profile, *site, "--slurm-no-account", *arguments]

    @contextlib.contextmanager
    def started(self, *arguments):
        """Snakemake, running beside the test and ended with it; `finish` waits for it."""
        with open(self.folder / "said", "w") as said:
            process = subprocess.Popen(
                self.command(*arguments), cwd=self.folder, env=self.environment, stdout=said, stderr=subprocess.STDOUT
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def finish(self, process):
        """The run when it has ended."""
        return Run(process.wait(200), (self.folder / "said").read_text())

    def submitted(self):
        """The jobs of this folder in the order of their numbers, each with what the controller knows of it."""
        found = {}
        for number, name in sorted(self.cluster.jobs().items(), key=lambda item: int(item[0])):
            job = self.cluster.job(number)
            if job["WorkDir"] == str(self.folder):
                found[number] = {**job, "name": name.removeprefix("rule_predict_wildcards_demo_")}
        return found


def run_of(**models):
    """A run of these models on one data set at one level."""
    common = {"engine": "standin:StandIn", "chat": "none", "window": 4096, "threads": 1}
    return {
        "run": {"benchmarks": ["demo"], "models": list(models)},
        "benchmarks": {"demo": {"datasets": ["needle_en"], "lengths": ["250"], "records": 6}},
        "models": {name: {**common, **entry} for name, entry in models.items()},
    }


def parse(slurm, **entry):
    """The entry of a model with these options of SLURM, at the levels 250, 500 and 1000."""
    given = run_of(model={"slurm": slurm, **entry})
    given["benchmarks"]["demo"]["lengths"] = "all"
    return config.parse(given).models["model"]


class TestOptions:
    """What the configuration may say, and the resources that come of it."""

    def test_one_text_or_one_by_length_and_nothing_for_what_is_left_out(self):
        by_length = {"partition": {"250": "short", "1000": "long"}, "account": "a1", "qos": "high", "constraint": "x&y"}
        entry = parse({**by_length, "extra": "--exclusive"})
        same = {"slurm_account": "a1", "qos": "high", "constraint": "x&y", "slurm_extra": "--exclusive"}
        assert resources(entry, "250") == {**same, "slurm_partition": "short"}
        assert resources(entry, "500") == same
        assert resources(entry, "1000") == {**same, "slurm_partition": "long"}
        assert resources(parse(None), "250") == {}

    def test_a_kind_of_gpu_is_asked_for_with_gpus_only(self):
        assert resources(parse({"gpu_model": "a100"}, gpu=2), "250") == {"gpu_model": "a100"}
        assert resources(parse({"gpu_model": "a100"}), "250") == {}

    def test_they_run_nothing_again(self):
        assert parse({"partition": "a"}).spec() == parse({"partition": "b"}).spec() == parse(None).spec()

    @pytest.mark.parametrize(
        ("slurm", "said"),
        [
            ({"partion": "gpu"}, "models.model.slurm: unknown key 'partion'; did you mean 'partition'?"),
            ({"partition": {"251k": "gpu"}, "qos": "x"}, None),
            ({"partition": {"25O": "gpu"}}, "models.model.slurm.partition: '25O' is not known; did you mean '250'?"),
            ({"account": 12}, "models.model.slurm.account: 12: Input should be a valid string"),
            (
                {"gpu_model": "a100:4"},
                "models.model.slurm.gpu_model: 'a100:4': .*a kind of GPU was expected, without a",
            ),
            ({"extra": ""}, "models.model.slurm.extra: '': .*one line of text was expected; leave the key out"),
            ("gpu", "models.model.slurm: keys were expected, found 'gpu'"),
        ],
    )
    def test_what_is_wrong_is_named(self, slurm, said):
        if said is None:
            parse(slurm)  # any number of words is a level of the demo
        else:
            with pytest.raises(UserError, match=f"^{re.escape(said).replace(re.escape('.*'), '.*')}"):
                parse(slurm)


def wait_for(what, process, ready):
    """Wait for something to happen while snakemake runs."""
    deadline = time.monotonic() + 90
    while not (found := ready()):
        assert process.poll() is None, f"snakemake ended before {what}"
        assert time.monotonic() < deadline, f"{what}: not within 90 s"
        time.sleep(0.2)
    return found


def devices_given(log):
    """The devices of each job that had some, as the jobs saw them; one that two jobs had at once fails."""
    held, given = {}, []
    for line in sorted(log.read_text().splitlines(), key=lambda line: float(line.split()[-2])):
        what, *devices, _, name = line.split()
        devices = devices[0].split(",") if devices else []
        given += [devices] if devices and what == "start" else []
        for device in devices:
            if what == "start":
                assert device not in held, f"{name} and {held[device]} both have {device}"
                held[device] = name
            else:
                assert held.pop(device) == name
    return given


class TestOnSlurm:
    """A SLURM job each: what was asked for, what was given, and what was taken away."""

    pytestmark = on_slurm

    def test_jobs_get_what_their_models_ask_for_and_devices_of_their_own(self, cluster, tmp_path):
        one = {"gpu": 1, "mem_mb": {"250": 3000, "500": 5000}, "runtime": 7}
        one["slurm"] = {"partition": {"250": "main"}, "gpu_model": "fake", "extra": "--nice=3"}
        two = {"gpu": 2, "threads": 2, "options": {"name": "two"}}
        workflow = SlurmWorkflow(tmp_path, run_of(one=one, two=two, client={"api_calls": 2}), cluster)
        workflow.config["benchmarks"]["demo"].update(lengths=["250", "500"], records=2)
        workflow.environment["STANDIN_DELAY"] = "0.5"
        run = workflow.run("tables", "--resources", "api_calls=2", "--default-resources", "slurm_partition=long")
        assert run.jobs["predict"] == 4
        assert run.jobs["predict_api"] == 2
        assert workflow.counted()["requests"] == 12
        assert len(list((tmp_path / "results/tables/demo").glob("*/full/result.json"))) == 3

        jobs = {job["name"]: job for job in workflow.submitted().values()}
        # Nothing but the predictions of models that run here is a SLURM job.
        assert sorted(jobs) == [f"{model}_full_needle_en_{n}" for model in ("one", "two") for n in (250, 500)]
        asked = {
            name: tuple(job[key] for key in ("TresPerJob", "Partition", "MinMemoryNode", "TimeLimit", "Nice"))
            for name, job in jobs.items()
        }
        assert asked["one_full_needle_en_250"] == ("gres:gpu:fake:1", "main", "3000M", "00:07:00", "3")
        assert asked["one_full_needle_en_500"] == ("gres:gpu:fake:1", "long", "5000M", "00:07:00", "3")
        assert asked["two_full_needle_en_250"][:2] == ("gres:gpu:2", "long")
        assert jobs["two_full_needle_en_250"]["CPUs/Task"] == "2"

        given = devices_given(tmp_path / "devices")
        assert sorted(map(len, given)) == [1, 1, 2, 2]  # and none for the client
        # How many of them run side by side is the scheduler's business.
        assert {device for devices in given for device in devices} <= {str(number) for number in range(GPUS)}

    def test_a_pre_empted_job_goes_back_into_the_queue_and_on_at_its_record(self, cluster, tmp_path):
        entry = {"engine": "hanging:HangsOnce", "gpu": 1, "options": {"after": 4, "mark": str(tmp_path / "mark")}}
        workflow = SlurmWorkflow(tmp_path, run_of(once=entry), cluster)
        with workflow.started("predictions") as process:
            wait_for("the fourth record", process, (tmp_path / "mark").exists)
            assert workflow.counted() == {"loads": 1, "requests": 4}
            ((number, _),) = workflow.submitted().items()

            urgent = ["--partition=urgent", f"--gpus={GPUS}", "--output=/dev/null", "--wrap", "sleep 1"]
            urgent = cluster.ask("sbatch", "--parsable", *urgent).strip()
            wait_for("pre-emption", process, lambda: cluster.job(number)["JobState"] == "PENDING")
            wait_for("the urgent job", process, lambda: cluster.job(urgent)["JobState"] == "COMPLETED")
            # SLURM holds back a requeued job for two minutes; an administrator can let it go.
            wait_for("the release", process, lambda: release(cluster, number))
            run = workflow.finish(process)
        assert run.status == 0, run.text
        assert workflow.counted() == {"loads": 1, "requests": 2}
        assert list(workflow.submitted()) == [number]  # SLURM's requeue, not another job of Snakemake's
        assert cluster.job(number)["Restarts"] == "1"
        assert answers(tmp_path) == undisturbed(workflow, tmp_path / "again")

    def test_a_job_out_of_time_is_submitted_again_with_more_and_goes_on(self, cluster, tmp_path):
        entry = {"engine": "hanging:HangsOnce", "options": {"after": 4, "mark": str(tmp_path / "mark")}}
        workflow = SlurmWorkflow(tmp_path, run_of(once={**entry, "gpu": 1, "runtime": 1, "mem_mb": 700}), cluster)
        with workflow.started("predictions") as process:
            wait_for("the fourth record", process, (tmp_path / "mark").exists)
            ((first, _),) = workflow.submitted().items()
            # The minute is over at once, for a quicker test; SLURM looks at its clocks every half a minute.
            cluster.ask("scontrol", "update", f"JobId={first}", "EndTime=now+1")
            run = workflow.finish(process)
        assert run.status == 0, run.text
        assert f"SLURM-job '{first}' failed, SLURM status is: 'TIMEOUT'" in run.text
        jobs = list(workflow.submitted().values())
        kept = [tuple(job[key] for key in ("JobState", "TimeLimit", "MinMemoryNode")) for job in jobs]
        assert kept == [("TIMEOUT", "00:01:00", "700M"), ("COMPLETED", "00:02:00", "1400M")]
        assert workflow.counted() == {"loads": 2, "requests": 6}
        assert answers(tmp_path) == undisturbed(workflow, tmp_path / "again")

    def test_a_job_that_fails_says_why_and_takes_no_other_with_it(self, cluster, tmp_path):
        wrong = {"slurm": {"partition": {"250": "nowhere"}}}
        workflow = SlurmWorkflow(tmp_path, run_of(good={"gpu": 1}, wrong=wrong), cluster)
        workflow.config["benchmarks"]["demo"].update(
            lengths=["250", "500"], records=3, prompts={"needle_en": "{language} {context}"}
        )
        workflow.run("download")
        records = tmp_path / "resources/records/demo/needle_en/250.jsonl"
        records.write_text(records.read_text().replace('"language"', '"tongue"'), encoding="utf-8")
        run = workflow.run("predictions", "--retries", "0", check=False)
        assert run.status == 1
        assert "error: resources/records/demo/needle_en/250.jsonl, record needle_en_250_0000" in run.text
        assert "invalid partition specified: nowhere" in run.text
        made = tmp_path / "results/predictions/demo"
        done = sorted(str(path.relative_to(made)) for path in made.rglob("*.jsonl"))
        assert done == ["good/full/needle_en/500.jsonl", "wrong/full/needle_en/500.jsonl"]


def release(cluster, number):
    """Let a requeued job start; True when it has been let go."""
    if cluster.job(number)["JobState"] != "PENDING":
        return True
    cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now", check=False)
    return False


def answers(folder):
    """The bytes of the predictions of the model `once`."""
    return (folder / "results/predictions/demo/once/full/needle_en/250.jsonl").read_bytes()


def undisturbed(workflow, folder):
    """The predictions of the same run on this machine; the engine does not hang again."""
    folder.mkdir()
    again = Workflow(folder, workflow.config)
    again.environment = {**workflow.environment, "CUDA_VISIBLE_DEVICES": "0"}
    again.run("predictions", "--resources", "gpu=1")
    return answers(folder)
