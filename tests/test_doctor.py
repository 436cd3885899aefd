"""The look over a run: every fault is found, named and comes with its remedy; a sound run has none."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from helpers_models import CHATML, make_model
from helpers_server import FakeServer

from longflow import config, doctor

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model") / "tiny", bos=True, window=8192)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def run_on(entry, **changes):
    demo = {"datasets": ["singlehop_en"], "lengths": ["250"], "records": 2}
    run = {"benchmarks": ["demo"], "models": ["m"], **changes.pop("run", {})}
    return {"run": run, "benchmarks": {"demo": demo}, "models": {"m": entry}, **changes}


def local(folder, **changes):
    return {"engine": "transformers", "path": str(folder), "chat": "template", **changes}


def served(url, **changes):
    return {"engine": "openai", "model": "small", "base_url": url, "chat": "template", "window": 8192, **changes}


def checks(given):
    """The checks of a run by what they looked at."""
    return {check.what: check for check in doctor.examine(config.parse(given))}


def problems(given):
    return [check for check in doctor.examine(config.parse(given)) if check.word == "problem"]


def test_a_sound_run_has_no_problem(tiny):
    found = checks(run_on(local(tiny)))
    assert {check.word for check in found.values()} == {"ok"}
    assert "no BOS" in found["models.m.chat"].said  # the template writes none, and none is added
    assert "fit into 8192 tokens" in found["models.m: window for demo"].said
    assert found["data of demo"].said.startswith("1 data sets and lengths")
    for package in ("torch", "transformers", "snakemake"):
        assert package in found


def broken(tiny, folder, how):
    """A copy of the model with a fault."""
    made = Path(shutil.copytree(tiny, folder))
    weights = made / "model.safetensors"
    if how == "torn":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif how == "no weights":
        weights.unlink()
    elif how == "no config":
        (made / "config.json").unlink()
    elif how == "no template":
        (made / "chat_template.jinja").unlink()
    elif how == "torn tokenizer":
        (made / "tokenizer.json").write_text("{")
    return made


@pytest.mark.parametrize(
    ("how", "what", "said"),
    [
        ("torn", "models.m: files", "torn"),
        ("no weights", "models.m: files", "no weights"),
        ("no config", "models.m: files", "no config.json"),
        ("no template", "models.m.chat", "no chat template; choose chat: none"),
        ("torn tokenizer", "models.m.chat", "cannot be loaded"),
    ],
)
def test_faults_of_a_models_files_are_named(tiny, tmp_path, how, what, said):
    (found,) = problems(run_on(local(broken(tiny, tmp_path / "m", how), window=8192)))
    assert found.what == what
    assert said in found.said


@pytest.mark.parametrize(
    ("chat", "word", "said"),
    [
        ("<s>[INST] {prompt} [/INST]", "problem", "prompts begin with two BOS: '<s>' stands in the text"),
        ("[INST] {prompt} [/INST]", "ok", "one BOS"),
        ("none", "ok", "one BOS"),
        ("reference:mistral", "ok", "two BOS, as the reference's do"),
    ],
)
def test_a_second_bos_is_found(tiny, chat, word, said):
    found = checks(run_on(local(tiny, chat=chat)))["models.m.chat"]
    assert (found.word, said in found.said) == (word, True)


def test_a_template_that_writes_bos_is_not_given_another(tmp_path):
    folder = make_model(tmp_path / "m", bos=True, window=8192, chat_template="{{ bos_token }}" + CHATML)
    found = checks(run_on(local(folder)))["models.m.chat"]
    assert (found.word, "one BOS" in found.said) == ("ok", True)


def test_the_chat_wrapper_counts_into_the_window(tiny):
    long = "x " * 200 + "{prompt}"
    (found,) = problems(run_on(local(tiny, chat=long, max_prompt_tokens=8100)))
    assert found.what == "models.m: window for demo"
    limit = int(found.said.split("set max_prompt_tokens to ")[1].split()[0])
    assert problems(run_on(local(tiny, chat=long, max_prompt_tokens=limit))) == []
    assert problems(run_on(local(tiny, chat=long, max_prompt_tokens=limit + 1))) != []


def test_reasoning_counts_into_the_window(tiny):
    entry = local(tiny, max_prompt_tokens=7000, reasoning={"max_tokens": 1170}, chat="template")
    (found,) = problems(run_on(entry))
    assert "1170 of reasoning" in found.said


def test_what_is_fetched_later_cannot_be_told():
    found = checks(run_on(local("org/absent", window=8192)))
    assert found["models.m: files"].word == "cannot be told"
    assert "snakemake download" in found["models.m: files"].said


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/none/of/these", "no such folder, and it is not a hub id"),
        ("./none", "no such folder"),
        ("~/none-of-these", "no such folder"),
        ("none.gguf", "model none.gguf: no such file"),
    ],
)
def test_a_model_that_is_nowhere_is_a_problem(path, words):
    (found,) = problems(run_on(local(path, window=8192)))
    assert found.what == "models.m: files"
    assert words in found.said


def test_an_engine_of_one_s_own_is_imported_and_asked_for_its_tokenizer(tmp_path):
    own = {"chat": "template", "window": 4096, "path": str(tmp_path)}  # the folder holds no tokenizer of ours
    found = checks(run_on({"engine": "standin:StandIn", **own}))
    assert {check.word for check in found.values()} == {"ok"}
    assert "fit into 4096 tokens" in found["models.m: window for demo"].said
    assert "6 of wrapper" in found["models.m: window for demo"].said  # <user><model>, counted by its own tokenizer
    (problem,) = problems(run_on({"engine": "nowhere:Engine", **own}))
    assert "engine 'nowhere:Engine' cannot be loaded: ModuleNotFoundError" in problem.said


class Listing(http.server.BaseHTTPRequestHandler):
    """GET /v1/models of a server with one model and a key."""

    def do_GET(self):
        right = self.headers.get("Authorization") == "Bearer right"
        body = json.dumps({"data": [{"id": "small"}]}) if self.path == "/v1/models" else "<html>"
        self.send_response(200 if right else 401)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def listing():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_server_is_asked_for_its_models(listing, monkeypatch):
    def word(key, **changes):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        found = checks(run_on(served(f"{listing}/v1", **changes)))["models.m: server"]
        assert key not in found.said.replace("right one", "")
        return found.word, found.said

    assert word("right")[0] == "ok"
    said = word("right", model="larger")
    assert said[0] == "problem"
    assert "has no larger; it has small: mend model:" in said[1]
    assert "refuses the key (HTTP 401)" in word("secret-key-1")[1]


def test_a_server_that_lists_nothing_cannot_be_told():
    with FakeServer() as server:
        found = checks(run_on(served(server.url)))["models.m: server"]
    assert found.word == "cannot be told"
    assert server.requests == []  # no prompt was sent


def test_a_server_that_is_not_there_is_a_problem():
    with FakeServer() as server:
        url = server.url
    (found,) = problems(run_on(served(url)))
    assert found.what == "models.m: server"
    assert "start the server" in found.said


def test_a_key_that_is_not_set_is_a_problem():
    (found,) = problems(run_on(served(None)))
    assert found.said == "OPENAI_API_KEY is not set; export it with the API key"


def test_a_command_that_is_not_here_is_a_problem():
    (found,) = problems(run_on(served(None, serve="no-such-program --port {port}")))
    assert found.what == "models.m.serve"
    assert "no-such-program" in found.said


def test_short_records_are_a_problem(tiny):
    path = Path("resources/records/demo/singlehop_en/250.jsonl")
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    (found,) = problems(run_on(local(tiny)))
    assert "has 1 records, 2 were expected; delete it" in found.said


def lveval(tiny, source):
    given = run_on(local(tiny), run={"benchmarks": ["lveval"]})
    given["benchmarks"] = {"lveval": {"datasets": ["factrecall_en"], "lengths": ["16k"], "source": source}}
    return given


def test_data_that_are_not_downloaded_are_a_problem(tiny):
    found = problems(lveval(tiny, "hub"))
    assert [check.what for check in found] == ["data of lveval"]
    assert "factrecall_en.zip" in found[0].said
    assert "snakemake download" in found[0].said


def test_damaged_and_wrong_data_are_a_problem(tiny, tmp_path):
    archive = tmp_path / "source" / "factrecall_en.zip"
    archive.parent.mkdir()
    archive.write_bytes(b"PK no archive")
    assert "not a readable zip archive" in problems(lveval(tiny, "source"))[0].said
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("factrecall_en/factrecall_en_16k.jsonl", '{"input": "who?"}\n')
    assert "'context' should be a str" in problems(lveval(tiny, "source"))[0].said
    assert "nowhere" in problems(lveval(tiny, "nowhere"))[0].said


def test_a_disk_that_is_too_small_is_a_problem(tiny, monkeypatch):
    """Free space cannot be used up in a test: the planned size is what is exaggerated, by its own rule."""
    monkeypatch.setattr("longflow.doctor.machine.ROW_BYTES", 10**15)
    (found,) = problems(run_on(local(tiny)))
    assert found.what == "disk (results)"
    assert "make room" in found.said


def test_sizes_of_archives_are_read_without_unpacking(tiny, tmp_path):
    archive = tmp_path / "source" / "factrecall_en.zip"
    archive.parent.mkdir()
    row = json.dumps({"input": "who?", "context": "x" * 3_000_000, "answers": ["me"]})
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("factrecall_en_16k.jsonl", row + "\n")
    assert archive.stat().st_size < 100_000
    assert checks(lveval(tiny, "source"))["disk (resources)"].said.startswith("3.0 MB to come")


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has GPUs of its own")
def test_gpus_are_counted(tiny, monkeypatch):
    given = run_on(local(tiny, gpu=4))
    assert checks(given)["GPUs"].word == "cannot be told"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert checks(given)["GPUs"].word == "problem"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    assert checks(given)["GPUs"].word == "ok"


def test_a_folder_that_cannot_be_written_is_a_problem(tiny):
    # /proc takes no files from anybody, root included.
    found = [check.what for check in problems(run_on(local(tiny), run={"results": "/proc/longflow"}))]
    assert "run.results" in found
    assert "run.journal" in found


def test_a_missing_model_of_a_setting_is_a_problem(tiny):
    rag = {"kind": "rag", "retriever": "dense", "model": "./no/such/model"}
    given = run_on(local(tiny), settings={"found": rag})
    given["run"]["settings"] = ["full", "found"]
    (found,) = problems(given)
    assert found.what == "settings.found"
    assert "there is no folder ./no/such/model" in found.said


@pytest.mark.slow
def test_the_command_leaves_with_1_if_there_is_a_problem(tiny, tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}

    def run(given):
        (tmp_path / "run.json").write_text(json.dumps(given))
        command = [
            sys.executable,
            "-m",
            "scripts.doctor",
            "-d",
            str(tmp_path),
            "--configfile",
            str(tmp_path / "run.json"),
        ]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    good, bad = run(run_on(local(tiny))), run(run_on(local(tiny, chat="<s>{prompt}")))
    assert (good.returncode, bad.returncode) == (0, 1), good.stdout + good.stderr + bad.stderr
    assert bad.stdout.splitlines()[-1] == "1 problem"
    words = {line[:14].strip() for line in good.stdout.splitlines()[:-1]}
    assert words <= {"ok", "cannot be told"}
