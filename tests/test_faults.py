"""What a kill, a signal, a full disk and lost rights cost: what is in flight, and nothing more.

After each fault the run has to end with the bytes of an undisturbed run, and no answer that was kept is made again.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, TESTS, Workflow, small_run

from longflow import config as configuration
from longflow import jobs, models, predict
from longflow.cells import Cell, Files, predict_spec
from longflow.journal import Journal
from longflow.jsonio import read_json, write_json, write_jsonl
from longflow.records import Record, question_id

pytestmark = pytest.mark.slow

CELL = Cell("demo", "model", "full", "needle_en", "250")
STANDIN = {"engine": "standin:StandIn", "chat": "none", "window": 4096}


def records(number, words=60):
    """Records of a demo data set, made up."""
    for index in range(number):
        fields = {
            "input": f"Which is number {index}?",
            "context": f"Number {index} is {index * 7}. " + "Some more words. " * (words // 3),
            "answers": [str(index * 7)],
            "answer_keywords": None,
            "length": words,
            "language": "en",
            "dataset": "needle_en",
        }
        yield Record(f"needle_en_250_{index:04d}", question_id("needle_en", fields["input"], fields["answers"]), fields)


class Cellar:
    """One cell in a folder, and the real command that predicts it."""

    def __init__(self, folder, entry=STANDIN, number=24, identity=None, location=None, journal=None):
        folder.mkdir(exist_ok=True, parents=True)
        self.folder = folder
        self.number = number
        merged = {
            "run": {
                "benchmarks": ["demo"],
                "models": ["model"],
                "results": str(folder / "results"),
                "resources": str(folder / "resources"),
                "journal": str(journal or folder / "journal"),
            },
            "benchmarks": {"demo": {"datasets": ["needle_en"], "lengths": ["250"]}},
            "models": {"model": entry},
        }
        write_json(folder / "merged.json", merged)
        self.config = configuration.parse(merged)
        self.files = Files(self.config)
        self.spec = predict_spec(self.config, CELL)
        self.records = folder / "records.jsonl"
        write_jsonl(self.records, (record.to_row() for record in records(number)))
        self.model_file = folder / "model.json"
        identity = identity or {"name": "stand-in"}
        write_json(self.model_file, {"identity": identity, "location": location, "window": entry["window"]})
        self.output = folder / "results/predictions.jsonl"
        self.count_file = folder / "count"
        self.said = folder / "said"

    def start(self, delay=0.0, prefix=(), **environment):
        """Start the command, behind a prefix. What it says goes to a file."""
        command = [
            *prefix,
            sys.executable,
            "-m",
            "scripts.predict",
            CELL.name,
            "--records",
            self.records,
            "--model-file",
        ]
        command += [self.model_file, "--spec", self.spec, "--output", self.output]
        with open(self.said, "w") as stream:
            return subprocess.Popen(
                [str(part) for part in command],
                cwd=ROOT,
                stdout=stream,
                stderr=stream,
                env={
                    **os.environ,
                    "PYTHONPATH": f"{ROOT}:{TESTS}",
                    "LONGFLOW_CONFIG": str(self.folder / "merged.json"),
                    "STANDIN_COUNT": str(self.count_file),
                    "STANDIN_DELAY": str(delay),
                    **environment,
                },
            )

    def requests(self):
        """How many requests were generated so far, by all processes."""
        return self.count_file.read_text().count("request ") if self.count_file.exists() else 0

    def wait_for(self, process, number):
        """Wait until so many requests were generated, or the process ended."""
        while process.poll() is None and self.requests() < number:
            time.sleep(0.003)

    def finish_copy(self, folder):
        """End the run in this process, on a copy of the journal: the bytes of the predictions, what was generated."""
        shutil.rmtree(folder, ignore_errors=True)
        source = Path(self.files.journal_of(CELL))
        if source.exists():
            shutil.copytree(source, folder / "journal")
        job = jobs.job(self.config, CELL, str(self.records), str(self.model_file), json.loads(self.spec))
        job = predict.Job(**{**vars(job), "journal": str(folder / "journal")})
        counts = predict.run(job, folder / "out.jsonl", folder / "usage.json")
        return (folder / "out.jsonl").read_bytes(), counts["generated"]

    def kept(self):
        """How many answers the journal holds."""
        return len(Journal(self.files.journal_of(CELL)).answers)


def undisturbed(tmp_path):
    """The bytes of the predictions of a run to which nothing happens."""
    cell = Cellar(tmp_path / "undisturbed")
    process = cell.start()
    assert process.wait(timeout=60) == 0, cell.said.read_text()
    assert cell.requests() == cell.number
    return cell.output.read_bytes()


def strike(cell, process, chooser, number):
    """Send a signal at a random moment: while it starts, while it works, or while it ends. Returns the signal."""
    moment, before = chooser.random(), cell.requests()
    if moment < 0.1:
        time.sleep(chooser.uniform(0.0, 0.5))
    elif moment < 0.85 and before < cell.number:
        cell.wait_for(process, min(before + chooser.randint(1, 7), cell.number))
        time.sleep(chooser.uniform(0.0, 0.006))
    else:
        cell.wait_for(process, cell.number)
        while process.poll() is None and "answered before" not in cell.said.read_text():
            time.sleep(0.003)
        time.sleep(chooser.uniform(0.0, 0.03))
    sent = signal.SIGTERM if number % 10 == 3 else signal.SIGINT if number % 10 == 7 else signal.SIGKILL
    process.send_signal(sent)
    return sent


def test_a_hundred_kills_lose_what_was_in_flight_and_nothing_else(tmp_path):
    expected = undisturbed(tmp_path)
    chooser = random.Random(20)
    kills = chains = at_work = 0
    while kills < 100:
        chains += 1
        cell = Cellar(tmp_path / f"chain-{chains}")
        in_chain, ended = 0, False
        while not ended and in_chain < 10:
            before = cell.requests()
            process = cell.start(delay=0.002)
            sent = strike(cell, process, chooser, kills)
            status = process.wait(timeout=30)
            said = cell.said.read_text()
            ended = status == 0
            if not ended:
                kills += 1
                in_chain += 1
                working = cell.requests() > before
                at_work += working
                done = ": done, " in said  # the interpreter itself is about to end, without our handlers
                if sent == signal.SIGKILL or not working or done:
                    assert status in (-sent, 128 + sent), said
                else:
                    assert status == 128 + sent, said
                    assert "Traceback" not in said
            # At every moment there is no predictions file, or the whole of it.
            assert not cell.output.exists() or cell.output.read_bytes() == expected
            kept = cell.kept()
            assert kept >= cell.requests() - in_chain  # one request at a time is in flight
            assert cell.finish_copy(tmp_path / "copy") == (expected, cell.number - kept)
        if not ended:
            assert cell.start().wait(timeout=60) == 0
        assert cell.output.read_bytes() == expected
        assert cell.requests() <= cell.number + in_chain
    assert at_work > 30
    print(f"{kills} kills in {chains} runs, {at_work} of them while requests were answered")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_command_within_seconds_in_one_line(tmp_path, number, status):
    """In the middle of a request that would take a minute."""
    cell = Cellar(tmp_path / "cell")
    process = cell.start(delay=0.05)
    cell.wait_for(process, 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = cell.kept()
    process = cell.start(delay=60)
    deadline = time.monotonic() + 20
    while "load" not in cell.count_file.read_text().splitlines()[-1] and time.monotonic() < deadline:
        time.sleep(0.01)
    began = time.monotonic()
    process.send_signal(number)
    assert process.wait(timeout=30) == status
    assert time.monotonic() - began < 5
    said = cell.said.read_text().splitlines()
    assert said[-1] == f"ended by {number.name}"
    assert "Traceback" not in said
    assert cell.kept() == kept
    assert not cell.output.exists()


def group(workflow, *arguments, delay="0"):
    """Start snakemake as the leader of a group of its own."""
    with open(workflow.folder / "said", "a") as stream:
        return subprocess.Popen(
            workflow.command(*arguments),
            cwd=workflow.folder,
            env={**workflow.environment, "STANDIN_DELAY": delay},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )


def results(workflow):
    """The bytes of all results that have to be equal."""
    found = {}
    for name in ("predictions", "scores", "tables", "plots", "leaderboard", "leaderboard.csv"):
        root = workflow.folder / "results" / name
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file():
                found[str(path.relative_to(workflow.folder))] = path.read_bytes()
    return found


def test_ten_kills_of_a_whole_workflow(tmp_path, first_run):
    expected = results(Workflow(first_run[0], small_run()))
    chooser = random.Random(4)
    kills = chains = 0
    while kills < 10:
        chains += 1
        folder = tmp_path / f"chain-{chains}"
        folder.mkdir()
        workflow = Workflow(folder, small_run())
        in_chain, status = 0, None
        while status != 0 and kills < 10:
            process = group(workflow, delay="0.2")
            try:
                status = process.wait(timeout=chooser.uniform(2, 16))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                kills += 1
                in_chain += 1
                assert group(workflow, "--unlock").wait(timeout=60) == 0
            assert status in (0, None), (folder / "said").read_text()
        workflow.run()
        assert results(workflow) == expected
        # two cores: two cells at a time, with a request each
        assert workflow.counted()["requests"] <= 12 + 2 * in_chain


def test_kills_of_the_real_model_leave_its_answers_as_they_are(tmp_path, smollm2):
    """In float32, where an answer does not depend on what else is computed."""
    entry = {"engine": "transformers", "path": str(smollm2), "chat": "template", "window": 8192}
    found = models.resolve({"revision": None, "tokenizer": None, "config_overrides": {}, **entry}, tmp_path / "model")
    place = {"entry": entry, "number": 6, "identity": found["identity"], "location": found["location"]}
    expected, generated = Cellar(tmp_path / "undisturbed", **place).finish_copy(tmp_path / "copy")
    assert generated == 6
    cell = Cellar(tmp_path / "cell", **place)
    chooser = random.Random(8)
    kills = 0
    for sent in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        before = cell.kept()
        process = cell.start(OMP_NUM_THREADS="1")
        deadline = time.monotonic() + 120
        while process.poll() is None and cell.kept() < min(before + 1, 6) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(chooser.uniform(0, 0.6))
        process.send_signal(sent)
        began = time.monotonic()
        if status := process.wait(timeout=60):
            kills += 1
            assert status in (-sent, 128 + sent), cell.said.read_text()
            assert sent == signal.SIGKILL or status == 128 + sent
        assert time.monotonic() - began < 15
        assert cell.kept() > before or before == 6
    assert kills
    before = cell.kept()
    assert cell.start(OMP_NUM_THREADS="1").wait(timeout=120) == 0, cell.said.read_text()
    assert cell.output.read_bytes() == expected
    assert read_json(cell.files.usage(CELL))["generated_here"] == 6 - before


# --- disks and rights ---


@pytest.fixture
def disk(tmp_path):
    """Mounts a small file system at a folder; gives a function that changes its size."""
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()

    def size(kilobytes, remount=True):
        options = f"{'remount,' if remount else ''}size={kilobytes}k"
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True).returncode

    if size(2000, remount=False):
        pytest.skip("no tmpfs can be mounted here")
    yield folder, size
    subprocess.run(["umount", folder], check=True)


def fill(folder):
    """Leave no room on a disk."""
    with open(folder / "ballast", "wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))


def one_line(cell, *said):
    """That the command said this in the one line of its error, and nothing of Python's."""
    lines = cell.said.read_text().splitlines()
    assert not any("Traceback" in line for line in lines), lines
    (line,) = (line for line in lines if line.startswith("error: "))
    assert all(each in line for each in said), line


def test_a_disk_that_fills_under_the_journal(tmp_path, disk):
    expected = undisturbed(tmp_path)
    folder, size = disk
    cell = Cellar(tmp_path / "cell", journal=folder / "journal")
    process = cell.start(delay=0.02)
    cell.wait_for(process, 5)
    fill(folder)
    assert process.wait(timeout=60) == 2
    one_line(cell, f"{folder}/journal", "the journal cannot be written (No space left on device)", "run again when")
    kept = cell.kept()
    assert 5 <= kept < 24
    assert size(4000) == 0
    before = cell.requests()
    assert cell.start().wait(timeout=60) == 0
    assert cell.output.read_bytes() == expected
    assert cell.requests() - before == 24 - kept


def test_a_disk_without_room_for_the_predictions(tmp_path, disk):
    expected = undisturbed(tmp_path)
    folder, size = disk
    cell = Cellar(tmp_path / "cell")
    cell.output = folder / "predictions.jsonl"
    fill(folder)
    assert cell.start().wait(timeout=60) == 2
    one_line(cell, str(cell.output), "No space left on device")
    assert [path.name for path in folder.iterdir()] == ["ballast"]  # no half file is left
    assert cell.kept() == 24
    assert size(4000) == 0
    before = cell.requests()
    assert cell.start().wait(timeout=60) == 0
    assert cell.output.read_bytes() == expected
    assert cell.requests() == before


def test_results_on_a_read_only_file_system(tmp_path, disk):
    folder, _ = disk
    cell = Cellar(tmp_path / "cell")
    assert cell.start().wait(timeout=60) == 0
    first = cell.output.read_bytes()
    cell.output = folder / "predictions.jsonl"
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    assert cell.start().wait(timeout=60) == 2
    one_line(cell, str(cell.output), "Read-only file system")
    subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
    assert cell.start().wait(timeout=60) == 0
    assert (cell.output.read_bytes(), cell.requests()) == (first, 24)


def test_lost_rights_are_one_line_and_nothing_is_lost(tmp_path):
    prefix = []
    if os.getuid() == 0:  # who may do everything has to give that up
        prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        if shutil.which("setpriv") is None or subprocess.run([*prefix, "true"]).returncode:
            pytest.skip("root cannot give up its rights here: there is no setpriv")
    expected = undisturbed(tmp_path)
    cell = Cellar(tmp_path / "cell")
    journal = Path(cell.files.journal_of(CELL))

    def run():
        return cell.start(prefix=prefix).wait(timeout=60)

    os.chmod(cell.folder, 0o555)
    cell.count_file.touch()
    try:
        assert run() == 2
        one_line(cell, str(journal), "the journal cannot be written (Permission denied)")
    finally:
        os.chmod(cell.folder, 0o755)

    cell.output.parent.mkdir()
    os.chmod(cell.output.parent, 0o555)
    assert run() == 2
    one_line(cell, str(cell.output), "Permission denied")
    assert (cell.kept(), cell.requests()) == (24, 24)

    os.chmod(journal, 0o000)
    assert run() == 2
    one_line(cell, str(journal), "the journal cannot be read (Permission denied)")

    os.chmod(journal, 0o755)
    os.chmod(cell.output.parent, 0o755)
    assert run() == 0
    assert cell.output.read_bytes() == expected
    assert cell.requests() == 24
