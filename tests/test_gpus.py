"""Device leases: no device for two jobs at once, and none kept by the dead."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from longflow.errors import UserError
from longflow.gpus import lease, visible_devices


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Locks of this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


HOLD = """
import os, sys, time
log = open(sys.argv[1], "a")
def say(what):
    os.write(log.fileno(), f"{what} {os.environ['CUDA_VISIBLE_DEVICES']} {time.monotonic()}\\n".encode())
say("start"); time.sleep(float(sys.argv[2])); say("end")
"""


def hold(folder, count, seconds, devices="0,1,2,3"):
    """Start a job that holds `count` devices for so long and writes down which."""
    environment = {**os.environ, "TMPDIR": str(folder), "CUDA_VISIBLE_DEVICES": devices}
    environment.pop("SLURM_JOB_ID", None)
    command = ["-m", "scripts.gpu_lease", "--n", str(count), "--timeout", "30", "--"]
    return subprocess.Popen(
        [sys.executable, *command, sys.executable, "-c", HOLD, str(folder / "log"), str(seconds)],
        env=environment,
        cwd=ROOT,
    )


def overlaps(log):
    """Devices that two jobs had at the same time."""
    held, found = set(), []
    for line in sorted(log.read_text().splitlines(), key=lambda line: float(line.split()[-1])):
        what, devices, _ = line.rsplit(" ", 2) if line.count(" ") == 2 else (line.split()[0], "", "")
        for device in filter(None, devices.split(",")):
            if what == "start":
                found += [device] if device in held else []
                held.add(device)
            else:
                held.discard(device)
    return found


def test_no_device_is_used_by_two_jobs(folder):
    jobs = [hold(folder, count, 0.4) for count in (1, 1, 2, 1, 2, 1, 3)]
    assert [job.wait(60) for job in jobs] == [0] * 7
    lines = (folder / "log").read_text().splitlines()
    assert len(lines) == 14
    assert overlaps(folder / "log") == []
    assert sorted(len(line.split()[1].split(",")) for line in lines if line.startswith("start")) == [
        1,
        1,
        1,
        1,
        2,
        2,
        3,
    ]


def test_a_killed_job_gives_its_device_back(folder):
    first = hold(folder, 1, 60, devices="7")
    while not (folder / "log").exists():
        time.sleep(0.02)
    first.kill()
    first.wait()
    began = time.monotonic()
    assert hold(folder, 1, 0, devices="7").wait(20) == 0
    assert time.monotonic() - began < 10


def test_too_few_devices_is_refused_with_the_numbers():
    with pytest.raises(UserError, match=r"2 GPUs are needed and 1 are here \(0\)"):
        lease(2, {"CUDA_VISIBLE_DEVICES": "0"}, 0)


def test_waiting_ends(folder):
    holder = hold(folder, 1, 30, devices="0")
    while not (folder / "log").exists():
        time.sleep(0.02)
    with pytest.raises(UserError, match="no 1 of the GPUs 0 became free within 0 s"):
        lease(1, {"CUDA_VISIBLE_DEVICES": "0"}, 0)
    holder.kill()
    holder.wait()


def test_no_gpu_hides_them_and_slurm_chooses_itself():
    assert lease(0, {"A": "1"}, 0) == {"A": "1", "CUDA_VISIBLE_DEVICES": ""}
    given = {"SLURM_JOB_ID": "1", "CUDA_VISIBLE_DEVICES": "3"}
    assert lease(1, given, 0) == given


def test_an_allocation_of_more_devices_is_dealt_out(folder):
    given = {"SLURM_JOB_ID": "17", "CUDA_VISIBLE_DEVICES": "0,1,2"}
    taken = [lease(1, given, 0)["CUDA_VISIBLE_DEVICES"] for _ in range(3)]  # this process holds what it leased
    assert sorted(taken) == ["0", "1", "2"]
    with pytest.raises(UserError, match="became free"):
        lease(1, given, 0)
    assert lease(1, {**given, "SLURM_JOB_ID": "18"}, 0)["CUDA_VISIBLE_DEVICES"] == "0"


def test_devices_are_those_the_environment_names():
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "GPU-ab, 2,"}) == ["GPU-ab", "2"]
    assert visible_devices({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "0,0,1,-1,2"}) == ["0", "1"]


def test_a_command_that_does_not_exist_is_named():
    done = subprocess.run(
        [sys.executable, "-m", "scripts.gpu_lease", "--n", "0", "--", "no-such-command"],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "error: no-such-command: cannot be run (No such file or directory)\n")
    assert Path(ROOT).is_dir()
