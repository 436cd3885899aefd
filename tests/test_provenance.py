"""What made the results is told in full, and no secret with it."""

import hashlib
import importlib.metadata
import json
import subprocess
import sys

import pytest
from conftest import ROOT

from longflow import __version__
from longflow.cells import Files, cells
from longflow.config import parse
from longflow.errors import UserError
from longflow.jsonio import write_json
from longflow.provenance import collect, git_state, sha256
from longflow.secrets import without_secrets


def a_run(folder, **model):
    entry = {"engine": "standin:StandIn", "chat": "none", "window": 4096, **model}
    merged = {
        "run": {
            "benchmarks": ["demo"],
            "models": ["standin"],
            "results": str(folder / "results"),
            "resources": str(folder / "resources"),
        },
        "benchmarks": {"demo": {"datasets": ["needle_en"], "lengths": ["250", "500"], "records": 3}},
        "models": {"standin": entry},
    }
    config = parse(merged)
    return config, list(cells(config)), Files(config), merged


def test_what_is_there_is_told_and_what_is_not_is_named(tmp_path):
    config, chosen, files, merged = a_run(tmp_path)
    write_json(files.model("standin"), {"identity": {"name": "a", "digest": "b"}, "location": "/somewhere"})
    records = tmp_path / "resources/records/demo/needle_en/250.jsonl"
    records.parent.mkdir(parents=True)
    records.write_bytes(b'{"id": "x"}\n' * 200_000)
    for cell, host, devices in zip(chosen, ("one", "two"), ("0", "1,2"), strict=True):
        write_json(files.usage(cell), {"host": host, "devices": devices, "libraries": ["torch 2", ""]})

    found = collect(config, chosen, files)
    assert found["longflow"] == __version__
    assert found["libraries"]["pydantic"] == importlib.metadata.version("pydantic")
    assert found["models"] == {"standin": {"name": "a", "digest": "b"}}
    expected = hashlib.sha256(records.read_bytes()).hexdigest()
    assert found["data"] == {str(records): {"sha256": expected, "bytes": records.stat().st_size}}
    assert found["missing"] == [str(records.with_name("500.jsonl"))]
    assert found["configuration"] == merged
    assert found["made_on"] == [
        {"host": "one", "devices": "0", "cells": 1, "libraries": ["torch 2"]},
        {"host": "two", "devices": "1,2", "cells": 1, "libraries": ["torch 2"]},
    ]
    json.dumps(found, allow_nan=False)


def test_of_a_run_that_did_not_begin_everything_is_missing(tmp_path):
    config, chosen, files, _ = a_run(tmp_path)
    found = collect(config, chosen, files)
    assert (found["models"], found["data"], found["made_on"]) == ({}, {}, [])
    assert len(found["missing"]) == 5  # the model, two files of records, two of usage


def git(folder, *arguments):
    settings = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *settings, *arguments], check=True, capture_output=True)


def test_the_state_of_a_checkout(tmp_path):
    assert git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-qm", "one")
    state = git_state(tmp_path)
    assert len(state["commit"]) == 40
    assert state["dirty"] is False
    (tmp_path / "new").write_text("results are not tracked")
    assert git_state(tmp_path)["dirty"] is False
    (tmp_path / "file").write_text("2")
    assert git_state(tmp_path) == {**state, "dirty": True}
    inside = tmp_path / "inside"
    inside.mkdir()
    assert git_state(inside) is None  # that commit is of another project


def test_no_secret_is_written_down(tmp_path):
    config, chosen, files, merged = a_run(
        tmp_path,
        options={
            "api_key": "sk-1",
            "headers": {"Authorization": "Bearer sk-2"},
            "url": "https://me:sk-3@host:8000/v1",
            "serve": "vllm serve --api-key sk-4 --port {port} && x --token=sk-5",
            "list": [{"password": "sk-6"}],
        },
    )
    found = collect(config, chosen, files)
    assert "sk-" not in json.dumps(found)
    assert found["configuration"]["models"]["standin"]["options"]["url"] == "https://host:8000/v1"
    assert "sk-1" in json.dumps(merged)  # the configuration itself is left as it is


@pytest.mark.parametrize(
    "value",
    [
        {"api_key_env": "OPENAI_API_KEY", "max_prompt_tokens": 7500, "max_tokens_field": "max_tokens"},
        {"serve": "vllm serve --api-key $KEY --max-tokens 5", "base_url": "http://localhost:8000/v1?a=b@c"},
        {"prompts": {"a": "mail me@home: {input}"}, "token": None},
    ],
)
def test_what_is_no_secret_stays(value):
    assert without_secrets(value) == value


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\)"):
        sha256(tmp_path)


def test_the_command_writes_the_file(tmp_path):
    *_, merged = a_run(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps(merged))
    command = [sys.executable, "-m", "scripts.provenance", "--configfile", tmp_path / "run.json"]
    output = tmp_path / "provenance.json"
    subprocess.run([*command, "--output", output, "--spec", "{}"], cwd=ROOT, check=True)
    assert json.loads(output.read_text())["configuration"]["models"]["standin"] == merged["models"]["standin"]
    assert output.with_name("provenance.json.spec").exists()
