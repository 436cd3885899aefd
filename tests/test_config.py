"""The configuration: what is accepted, what is refused and in which words, and what follows from it."""

import json
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT

from longflow import config
from longflow.cells import Cell, cells, expected_records, memory_mb, predict_spec
from longflow.errors import UserError

MODEL = {"engine": "transformers", "path": "org/name", "chat": "none", "window": 16384}


def build(**changes):
    """A configuration that is right, with top-level keys replaced."""
    return {
        "run": {"benchmarks": ["lveval"], "models": ["m"]},
        "models": {"m": dict(MODEL)},
        **changes,
    }


def with_model(**changes):
    return build(models={"m": {**MODEL, **changes}})


def with_lveval(**options):
    return build(benchmarks={"lveval": options})


def without(key):
    return build(models={"m": {k: v for k, v in MODEL.items() if k != key}})


WRONG = [
    (build(modles={}), "configuration: unknown key 'modles'; did you mean 'models'?"),
    (build(run={"benchmarks": ["lveval"], "modles": ["m"]}), "run: unknown key 'modles'; did you mean 'models'?"),
    (build(run={"benchmarks": ["lveval"]}), "run.models: missing"),
    (build(run={"benchmarks": ["lv-eval"], "models": ["m"]}), "'lv-eval' is not a known benchmark; did you mean"),
    (build(run={"benchmarks": ["lveval"], "models": ["n"]}), "run.models: 'n' is not an entry under models:"),
    (build(run={"benchmarks": ["lveval"], "models": []}), "run.models: nothing is chosen; name at least one of m"),
    (build(run={"benchmarks": ["lveval"], "models": ["m", "m"]}), "run.models: 'm' is named twice"),
    (build(run={"benchmarks": ["lveval"], "models": ["m"], "limit": 0}), "run.limit: 0: "),
    (build(run={"benchmarks": ["lveval"], "models": ["m"], "limit": "3"}), "run.limit: '3': "),
    (build(run=["lveval"]), "run: keys were expected"),
    (build(run={**build()["run"], "results": ""}), "run.results: '': "),
    (build(run={**build()["run"], "results": "a{b}"}), "run.results: 'a{b}': "),
    (build(run={**build()["run"], "journal": " "}), "run.journal: ' ': "),
    (build(models={"m": {**MODEL, "config_overrides": {"x": float("inf")}}}), "config_overrides.x: inf is not"),
    (with_model(path="\ud800"), "models.m.path: holds half of a surrogate pair"),
    (with_model(max_prompt_tokens={"lvevall": 100}), "max_prompt_tokens: 'lvevall' is not known"),
    (with_model(mem_mb={"sixteen": 100}), "models.m.mem_mb: 'sixteen' is not known"),
    (with_model(engine="a:B", path=None, api_calls=2, gpu=1), "models.m.gpu: 1, beside api_calls"),
    (build(models={"m": {"engine": "openai", "model": "x", "chat": "template", "chat_options": {"a": 1}}}),
     "models.m.chat_options: the server wraps the prompt itself"),
    (build(benchmarks={"demo": {"lengths": ["1k", 1000]}}), "demo.lengths: '1k' and '1000' are the same level"),
    (build(benchmarks={"demo": {"records": True}}), "benchmarks.demo.records: True: "),
    (with_lveval(prompts={"cmrc_mixup": "{input}"}), "prompts.cmrc_mixup: does not name {context}"),
    (with_lveval(prompts={"cmrc_mixup": "{context:d}"}), "prompts.cmrc_mixup: gives {context} a format"),
    (with_lveval(prompts={"cmrc_mixup": "{context:{size}}"}), "prompts.cmrc_mixup: gives {context} a format"),
    (build(models={"a/b": MODEL}), "models: 'a/b' is no name for a model"),
    (build(models={"../x": MODEL}), "models: '../x' is no name for a model"),
    (build(models={"m": "path"}), "models.m: keys such as engine: and path: were expected"),
    (without("engine"), "models.m.engine: missing"),
    (without("path"), "models.m.path: missing"),
    (without("chat"), "models.m.chat: missing"),
    (without("window"), "models.m.window: missing, and it cannot be read from a local config.json"),
    (with_model(engine="transformer"), "'transformer' is not an engine; did you mean 'transformers'?"),
    (with_model(patth="x"), "models.m: unknown key 'patth'; did you mean 'path'?"),
    (with_model(gpu="one"), "models.m.gpu: 'one': "),
    (with_model(gpu=-1), "models.m.gpu: -1: "),
    (with_model(dtype="fp8"), "models.m.dtype: 'fp8': "),
    (with_model(attention="flash"), "models.m.attention: 'flash': "),
    (with_model(chat="chatml"), "models.m.chat: 'chatml': should be template, none, "),
    (with_model(chat="reference:mistrall"), "no reference template 'mistrall'; did you mean 'mistral'?"),
    (with_model(chat_date="26 July"), "models.m.chat_date: '26 July' is not a date"),
    (with_model(max_prompt_tokens=16380), "16380 tokens of prompt and 64 of answer exceed the window of 16384"),
    (with_model(max_prompt_tokens=0), "models.m.max_prompt_tokens: 0 is too small"),
    (with_model(window=500, max_prompt_tokens=None), "leaves no prompt"),
    (with_model(runtime={"16k": 0}), "models.m.runtime: 0 is too small"),
    (with_lveval(datasets=["cmrc"]), "'cmrc' is not a data set of lveval; did you mean 'cmrc_mixup'?"),
    (with_lveval(datasets=[]), "benchmarks.lveval.datasets: nothing is chosen"),
    (with_lveval(lengths=["48k"]), "lveval has no level '48k'; levels are 16k, 32k, 64k"),
    (with_lveval(lengths=[]), "benchmarks.lveval.lengths: nothing is chosen"),
    (with_lveval(prompts={"cmrc_mixup": "{kontext}"}), "prompts.cmrc_mixup: names {kontext}, which no record has"),
    (with_lveval(prompts={"cmrc_mixup": "{context"}), "benchmarks.lveval.prompts.cmrc_mixup: not a template"),
    (with_lveval(prompts={"cmrc": "{context}"}), "benchmarks.lveval: lveval has no data set 'cmrc'"),
    (with_lveval(prompts={"cmrc_mixup": "{context}" + "长" * 30_000}), "90,009 bytes of template; at most 60,000"),
    (with_lveval(max_new_tokens={"cmrc_mixup": 0}), "benchmarks.lveval.max_new_tokens.cmrc_mixup: 0 is no length"),
    (with_lveval(rouge_overflow="maybe"), "benchmarks.lveval.rouge_overflow: 'maybe': "),
    (build(benchmarks={"longbenhc": {}}), "benchmarks: 'longbenhc' is not known"),
    (build(benchmarks={"lveval": ["16k"]}), "benchmarks.lveval: keys were expected"),
]  # fmt: skip


@pytest.mark.parametrize(("merged", "words"), WRONG, ids=[words[:60] for _, words in WRONG])
def test_each_fault_is_one_line_that_names_its_key(merged, words):
    with pytest.raises(UserError) as caught:
        config.parse(merged)
    text = str(caught.value)
    assert words in text
    assert "\n" not in text


def test_the_base_of_those_faults_is_right():
    parsed = config.parse(build())
    assert len(list(cells(parsed))) == 55


@pytest.mark.parametrize(
    ("window", "limit"),
    [(4096, 3500), (8192, 7500), (16384, 15500), (32768, 31500), (131072, 127500), (200000, 199500), (10000, 9500)],
)
def test_prompt_limit_is_the_references(window, limit):
    assert config.parse(with_model(window=window)).prompt_limit("m", "lveval")[0] == limit


def test_what_yaml_reads_as_dates_and_numbers_is_text_where_text_is_meant():
    import datetime

    parsed = config.parse(with_model(chat_date=datetime.date(2024, 1, 2)))
    assert parsed.models["m"].chat_date == "2024-01-02"
    assert config.parse(build(benchmarks={"demo": {"lengths": [500, "1k"]}})).options["demo"].lengths == ["500", "1k"]
    json.dumps(parsed.merged)


def test_home_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/somebody")
    parsed = config.parse(with_model(path="~/model"))
    assert parsed.models["m"].path == "/somebody/model"


def test_prompt_limit_by_benchmark():
    parsed = config.parse(with_model(max_prompt_tokens={"lveval": 1000}))
    assert parsed.prompt_limit("m", "lveval") == (1000, "max_prompt_tokens")


def test_files_merge_as_snakemake_merges(tmp_path):
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(build(benchmarks={"lveval": {"lengths": ["16k", "32k"]}})))
    (tmp_path / "b.yaml").write_text(
        "benchmarks: {lveval: {lengths: [64k]}}\nmodels: {n: {engine: openai, model: x, chat: template}}\n"
    )
    merged = config.load([tmp_path / "b.yaml"], base=tmp_path / "a.yaml")
    assert merged.lengths("lveval") == ["64k"]
    assert sorted(merged.models) == ["m", "n"]
    import snakemake.utils

    expected = yaml.safe_load((tmp_path / "a.yaml").read_text())
    snakemake.utils.update_config(expected, yaml.safe_load((tmp_path / "b.yaml").read_text()))
    assert merged.merged == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"run: [", "line 1, column"),
        (b"- a\n", "keys such as run: and models: were expected, found a list"),
        (b"run: \xff", "not UTF-8"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, words):
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"broken\.yaml") as caught:
        config.load([path])
    assert words in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.yaml: cannot be read \(No such file"):
        config.load([tmp_path / "nowhere.yaml"])


def test_spec_ignores_what_cannot_change_a_prediction():
    cell = Cell("lveval", "m", "full", "cmrc_mixup", "16k")
    spec = predict_spec(config.parse(with_model(gpu=1)), cell)
    assert spec == predict_spec(config.parse(with_model(gpu=4, threads=8, mem_mb=5, runtime=9)), cell)
    for change in (
        {"gpu": 0},  # float32 and not bfloat16
        {"attention": "eager"},
        {"revision": "abc"},
        {"chat": "template"},
        {"max_prompt_tokens": 5000},
        {"config_overrides": {"rope_theta": 1}},
        {"temperature": 0.5},
    ):
        assert spec != predict_spec(config.parse(with_model(**{"gpu": 1, **change})), cell), change


def test_limit_bounds_what_is_expected():
    parsed = config.parse(build(run={"benchmarks": ["lveval"], "models": ["m"], "limit": 150}))
    assert expected_records(parsed, "lveval", "cmrc_mixup", "16k") == 150
    assert expected_records(parsed, "lveval", "loogle_CR_mixup", "16k") == 99


def test_memory_grows_with_length_and_attempt():
    parsed = config.parse(with_model(gpu=1, runtime={"16k": 7}))
    short, long = (Cell("lveval", "m", "full", "cmrc_mixup", length) for length in ("16k", "256k"))
    assert memory_mb(parsed, short) < memory_mb(parsed, long)
    assert memory_mb(parsed, short, attempt=2) == 2 * memory_mb(parsed, short)


def test_the_schema_in_the_repository_is_the_code_s():
    assert json.loads((ROOT / "schemas/config.schema.json").read_text()) == config.json_schema()


def test_ready_made_configurations_are_right():
    import jsonschema

    schema = config.json_schema()
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        parsed = config.load([path])
        jsonschema.validate(parsed.merged, schema)


def test_commands_print_one_line_and_exit_with_2(tmp_path):
    (tmp_path / "c.yaml").write_text("run: {models: [nobody]}")
    for command in ("show_config", "preview"):
        done = subprocess.run(
            [sys.executable, "-m", f"scripts.{command}", "--configfile", str(tmp_path / "c.yaml")],
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        assert done.returncode == 2
        assert done.stderr == "error: run.models: 'nobody' is not an entry under models:; known: smollm2-135m\n"
        assert done.stdout == ""


def test_show_config_prints_every_default_and_the_limit():
    done = subprocess.run([sys.executable, "-m", "scripts.show_config"], capture_output=True, text=True, cwd=ROOT)
    shown = yaml.safe_load(done.stdout)
    assert shown["models"]["smollm2-135m"]["dtype"] == "float32"
    assert set(shown["run"]) == set(config.RunOptions.model_fields)
    assert "prompts cut to 7500 tokens (demo's rule for a window of 8192 tokens)" in done.stdout
