"""Servers that run for the length of one job: started, waited for, and ended whatever happens to the job."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_server import alive, gone

from longflow.engines import Completion, Generation, Request, load_engine, serve
from longflow.engines import openai as engine_module
from longflow.engines.serve import Server
from longflow.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'tests' / 'helpers_server.py'))} --port {{port}}"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "FIRST_DELAY", 0.05)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """The file where a server notes its process and its child's."""
    return tmp_path / "pids"


def read_pids(path: Path) -> list[list[int]]:
    """Process and child of each server that was started."""
    return [list(map(int, line.split())) for line in path.read_text().splitlines()] if path.exists() else []


def make_entry(command: str, **changes: Any) -> dict[str, Any]:
    entry = {"engine": "openai", "base_url": None, "model": "small", "api": "chat", "api_calls": 2, "max_retries": 2}
    return {**entry, "timeout": 10, "serve": command, "serve_timeout": 30, **changes}


def requests(*texts: str) -> Iterator[Request]:
    for text in texts:
        yield Request(text, [{"role": "user", "content": text}], False, Generation(8), text)


def test_a_server_runs_with_its_children_until_it_is_stopped(pids: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = Server(f"{PROGRAM} --say 'loading the model' --health 503 503 200 --pids {pids}", model="small")
    url = server.start()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1", url)
    ((process, child),) = read_pids(pids)
    assert alive(process)
    assert alive(child)
    assert server.ended() is None
    server.stop()
    assert not alive(process)
    assert not alive(child)
    server.stop()
    assert "server: loading the model" in capfd.readouterr().err


def test_a_server_that_does_not_want_to_end_is_ended(pids: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "GRACE", 0.5)
    with Server(f"{PROGRAM} --ignore-term --pids {pids}", model="small"):
        ((process, child),) = read_pids(pids)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert gone([process, child], 0.5)


def test_what_is_filled_in_and_what_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    """Braces of JSON stay; a name with spaces and quotes is one word."""
    command = 'echo model={model} gpu={gpu} \'{"a": {"b": 1}}\'; exec ' + PROGRAM
    with Server(command, model="org/it's a $(name)", gpu=2) as url:
        assert url
    assert 'server: model=org/it\'s a $(name) gpu=2 {"a": {"b": 1}}' in capfd.readouterr().err


def test_a_server_that_ends_at_once_is_one_line_with_its_last_words(pids: Path) -> None:
    began = time.monotonic()
    words = "ValueError: no such model: small"
    server = Server(f"{PROGRAM} --say {shlex.quote(words)} --fail 7 --pids {pids}", model="small")
    with pytest.raises(UserError) as caught:
        server.start()
    assert str(caught.value) == (
        f"the server of model small ended with status 7 before it was healthy; its last line: {words}"
    )
    assert time.monotonic() - began < 15
    # The child that it left behind goes with it.
    assert gone(read_pids(pids)[0], 3)


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"ended with status 127 before .*; its last line: .*no-such-program"):
        Server("no-such-program --port {port}", model="small").start()


def test_a_server_that_never_gets_healthy_is_given_up(pids: Path) -> None:
    server = Server(f"{PROGRAM} --health 503 --pids {pids}", model="small", timeout=1.5)
    with pytest.raises(UserError, match=r"not healthy within serve_timeout \(2 s; HTTP 503\)"):
        server.start()
    assert gone(read_pids(pids)[0], 1)


def test_a_server_without_health_is_asked_for_its_models() -> None:
    with Server(f"{PROGRAM} --health 404", model="small", timeout=20) as url:
        assert url


def test_two_servers_get_two_ports() -> None:
    with Server(PROGRAM, model="a") as first, Server(PROGRAM, model="b") as second:
        assert first != second


def test_a_command_needs_a_port_and_an_entry_no_address() -> None:
    with pytest.raises(UserError, match=r"\{port\}"):
        Server("vllm serve x", model="x")
    with pytest.raises(UserError, match="leave out base_url"):
        load_engine("openai", make_entry(PROGRAM, base_url="http://127.0.0.1:1/v1"), None)


def test_an_engine_starts_its_server_at_the_first_request_and_keeps_it_until_closed(pids: Path) -> None:
    engine = load_engine("openai", make_entry(f"{PROGRAM} --pids {pids}"), None)
    assert list(engine.generate(requests())) == []
    assert read_pids(pids) == []
    for part in ("a", "b"):  # as two cells of one job
        found = {answer.key: answer.text for answer in engine.generate(requests(f"{part}1", f"{part}2"))}
        assert found == {f"{part}1": f"answer to {part}1", f"{part}2": f"answer to {part}2"}
    ((process, child),) = read_pids(pids)
    assert alive(process)
    engine.close()
    assert not alive(process)
    assert not alive(child)


def test_a_server_that_dies_ends_the_run_with_its_last_words(pids: Path) -> None:
    entry = make_entry(f"{PROGRAM} --dies 'too much' --pids {pids}", api_calls=1, max_retries=50)
    engine = load_engine("openai", entry, None)
    found: list[Completion] = []
    began = time.monotonic()
    with pytest.raises(UserError, match=r"ended with status 3; its last line: CUDA error: out of memory"):
        found.extend(engine.generate(requests("good", "too much", "never")))
    assert time.monotonic() - began < 20
    engine.close()
    assert gone(read_pids(pids)[0], 1)


def test_a_key_is_not_in_the_log(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A server that is started with a key may print it among its arguments."""
    key = "sk-very-secret-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    entry = make_entry(f"{PROGRAM} --say \"api_key='$OPENAI_API_KEY'\" --fail 1")
    engine = load_engine("openai", entry, None)
    with caplog.at_level("DEBUG"), pytest.raises(UserError) as caught:
        list(engine.generate(requests("x")))
    shown = f"{caught.value} {caplog.text} {capfd.readouterr().err}"
    assert "api_key='***'" in shown
    assert key not in shown


JOB = """
import json, sys
from longflow.engines import Generation, Request, load_engine
engine = load_engine("openai", json.loads(sys.argv[1]), None)
prompts = [[{"role": "user", "content": text}] for text in ("quick", "hang")]
try:
    for answer in engine.generate(Request(str(p), p, False, Generation(8), "r") for p in prompts):
        print("answered", flush=True)
        if sys.argv[2:] == ["wait"]:
            import time; time.sleep(600)
finally:
    engine.close()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["KILL", "TERM", "INT"])
@pytest.mark.parametrize("ignores", [False, True], ids=["obedient", "stubborn"])
@pytest.mark.parametrize("when", ["starting", "serving"])
@pytest.mark.slow
def test_a_job_that_is_ended_takes_its_server_along(
    number: signal.Signals, ignores: bool, when: str, pids: Path
) -> None:
    """Also one killed at once, which cannot clean up itself; within seconds."""
    health = 503 if when == "starting" else 200
    command = f"{PROGRAM} --health {health} --pids {pids}{' --ignore-term' if ignores else ''}"
    arguments = [sys.executable, "-c", JOB, json.dumps(make_entry(command, api_calls=1)), "wait"]
    job = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        if when == "serving":
            assert job.stdout is not None
            assert job.stdout.readline() == "answered\n"
        else:
            deadline = time.monotonic() + 20
            while not read_pids(pids) and time.monotonic() < deadline:
                time.sleep(0.1)
            time.sleep(0.5)
        ((process, child),) = read_pids(pids)
        assert alive(process)
        job.send_signal(number)
        job.communicate(timeout=12)
        assert gone([process, child], 8)
    finally:
        job.kill()
        job.communicate()


@pytest.mark.slow
def test_a_server_goes_even_when_its_watcher_is_killed(pids: Path) -> None:
    server = Server(f"exec {PROGRAM} --pids {pids}", model="small")
    server.start()
    ((process, child),) = read_pids(pids)
    parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    assert gone([process], 5)
    assert server.ended() == "was killed by signal 9"
    server.stop()
    os.kill(child, signal.SIGKILL)


@pytest.mark.slow
def test_one_server_answers_all_cells_of_a_workflow(workflow: Any, pids: Path) -> None:
    """It is started once, gone afterwards, and not started where the journal has every answer."""
    model = {"engine": "openai", "model": "small", "chat": "template", "window": 4096, "api_calls": 4}
    workflow.config["models"] = {"served": {**model, "serve": f"{PROGRAM} --pids {pids}"}}
    workflow.config["run"]["models"] = ["served"]
    workflow.run("predictions", "--resources", "api_calls=4")
    (started,) = read_pids(pids)
    assert gone(started, 1)
    files = sorted((workflow.folder / "results" / "predictions").rglob("*.jsonl"))
    assert len(files) == 4
    before = [path.read_bytes() for path in files]
    assert all(json.loads(line)["pred"].startswith("answer to") for text in before for line in text.splitlines())
    for path in files:
        path.unlink()
    workflow.run("predictions", "--resources", "api_calls=4")
    assert [path.read_bytes() for path in files] == before
    assert read_pids(pids) == [started]


@pytest.mark.slow
def test_a_real_server_is_served_and_ended(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """transformers serve through `serve`: the greedy text of the local engine, and nothing is left running."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    local_entry = {
        "engine": "transformers", "path": str(smollm2), "revision": None, "tokenizer": None, "dtype": "float32",
        "attention": "sdpa", "gpu": 0, "threads": 2, "trust_remote_code": False, "config_overrides": {},
        "chat_date": "2024-07-26",
    }  # fmt: skip
    command = "transformers serve {model} --device cpu --dtype float32 --host 127.0.0.1 --port {port}"
    served_entry = make_entry(
        command, model=str(smollm2), tokenizer=str(smollm2), window=8192, timeout=300, serve_timeout=180
    )
    questions = ["What is the capital of France?", "Name three colours.", "Who wrote Faust?"]
    local, served = load_engine("transformers", local_entry, str(smollm2)), load_engine("openai", served_entry, None)
    tokenizer = served.tokenizer()
    assert tokenizer is not None
    generation = Generation(16)
    chats = [Request(text, tokenizer.chat(text, {}), False, generation, text) for text in questions]
    messages = [Request(text, [{"role": "user", "content": text}], False, generation, text) for text in questions]
    expected = {answer.key: answer.text for answer in local.generate(iter(chats))}
    local.close()
    try:
        found = {answer.key: (answer.text, answer.error) for answer in served.generate(iter(messages))}
    finally:
        served.close()
    assert found == {key: (text, None) for key, text in expected.items()}
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    port = re.search(r"http://127\.0\.0\.1:(\d+)", capfd.readouterr().err)
    assert port is not None
    assert f"--port {port[1]}" not in listed
