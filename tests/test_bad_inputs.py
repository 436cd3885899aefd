"""Whatever a person may give us by mistake: one line that names it and says what would be right, and nothing is lost.

The tables here hold what the tests of the single parts leave out; together they are the list of what can go wrong.
"""

import hashlib
import json
import os
import subprocess
import sys
import zipfile

import pytest
from conftest import ROOT, TESTS, small_run
from helpers_server import FakeServer
from test_faults import CELL, Cellar

from longflow import benchmarks, compare, config, imported, jobs, jsonio, models, records, score, specs, tables
from longflow.benchmarks import files, longbench, lveval
from longflow.cells import Cell, cells, setting_spec
from longflow.engines import load_engine
from longflow.errors import UserError

MODEL = {"engine": "transformers", "path": "org/name", "chat": "none", "window": 16384}
SERVED = {"engine": "openai", "model": "small", "chat": "template"}
ELSEWHERE = {"engine": "imported", "path": "/no/such/folder"}
LONG = "x" * 300


def build(model=None, run=None, **sections):
    """A configuration that is right, but for what is given."""
    return {
        "run": {"benchmarks": ["lveval"], "models": ["m"], **(run or {})},
        "models": {"m": dict(model or MODEL)},
        **sections,
    }


def model(**keys):
    return build({**MODEL, **keys})


def served(**keys):
    return build({**SERVED, **keys})


def elsewhere(**keys):
    return build({**ELSEWHERE, **keys})


def run(**keys):
    return build(run=keys)


def lveval_with(**options):
    return build(benchmarks={"lveval": options})


def setting(entry, benchmark="demo"):
    return build(run={"benchmarks": [benchmark], "settings": ["s"]}, settings={"s": entry})


def without_end():
    inner = {}
    inner["inner"] = inner
    return model(config_overrides=inner)


CONFIGURATIONS = [
    # models that run here
    (model(batch=0), "models.m.batch: 0: Input should be greater than or equal to 1"),
    (model(batch=2, shards=2), "models.m.shards: 2, beside batch: 2; choose one of them"),
    (model(shards=0), "models.m.shards: 0: Input should be greater than or equal to 1"),
    (model(shards=2.0), "models.m.shards: 2.0: Input should be a valid integer"),
    (model(prefill_chunk=-1), "models.m.prefill_chunk: -1: Input should be greater than or equal to 0"),
    (model(prompt_lookup=-1), "models.m.prompt_lookup: -1: Input should be greater than or equal to 0"),
    (model(decode="both"), "models.m.decode: 'both': Input should be 'single' or 'merged'"),
    (model(kv_offload=1), "models.m.kv_offload: 1: Input should be a valid boolean"),
    (model(share_prefixes="no"), "models.m.share_prefixes: 'no': Input should be a valid boolean"),
    (model(trust_remote_code="yes"), "models.m.trust_remote_code: 'yes': Input should be a valid boolean"),
    (model(config_overrides=[1]), "models.m.config_overrides: [1]: Input should be a valid dictionary"),
    (model(slurm=[]), "models.m.slurm: keys were expected, found []"),
    (model(slurm={"gpus": "4"}), "models.m.slurm: unknown key 'gpus'"),
    (model(gpu=True), "models.m.gpu: True: Input should be a valid integer"),
    (model(threads=0), "models.m.threads: 0: Input should be greater than or equal to 1"),
    (model(temperature=-1), "models.m.temperature: -1.0: Input should be greater than or equal to 0"),
    (model(top_p=1.5), "models.m.top_p: 1.5: Input should be less than or equal to 1"),
    (model(window=8), "models.m.window: 8: Input should be greater than or equal to 16"),
    (model(chat_date="2024-13-45"), "models.m.chat_date: '2024-13-45' is not a date of the form YYYY-MM-DD"),
    (
        model(max_prompt_tokens="7500"),
        "'7500': Input should be a valid integer, or: Input should be a valid dictionary",
    ),
    (model(max_prompt_tokens=1), "models.m: a prompt limit of 1 tokens (max_prompt_tokens) leaves no prompt"),
    (model(runtime={"16k": "1h"}), "models.m.runtime: {'16k': '1h'}: Input should be a valid integer"),
    (model(path=LONG), "a path of at most 3000 bytes, and 255 from / to /, was expected"),
    (model(path="a/" * 2000), "a path of at most 3000 bytes"),
    (model(tokenizer=LONG), "models.m.tokenizer: 'xxx"),
    (without_end(), "configuration: nested without end; does an alias (*name) stand within its own anchor?"),
    (model(config_overrides={"a": b"x"}), "models.m.config_overrides.a: b'x' is a bytes; give text, a number"),
    (model(engine="a:b c"), "models.m.engine: 'a:b c' is not an engine"),
    # thinking models
    (model(reasoning=True), "models.m.reasoning: keys were expected, found True"),
    (model(reasoning={}), "models.m.reasoning.max_tokens: missing (Tokens for the reasoning"),
    (model(reasoning={"max_tokns": 5}), "models.m.reasoning: unknown key 'max_tokns'; did you mean 'max_tokens'?"),
    (model(reasoning={"max_tokens": 5, "start": ""}), "models.m.reasoning.start: '': String should have at least 1"),
    (model(reasoning={"max_tokens": 900}), "15500 tokens of prompt and 964 of answer exceed the window of 16384"),
    (model(reasoning={"max_tokens": 17_000}), "models.m.window: an answer of 17064 tokens leaves no room for a prompt"),
    # servers
    (served(base_url="localhost:8000/v1"), "models.m.base_url: localhost:8000/v1 is no address; one such as http://"),
    (served(base_url="http://"), "models.m.base_url: http:// is no address"),
    (served(base_url="http://[::1/v1"), "models.m.base_url: http://[::1/v1 is no address"),
    (served(price=3), "models.m.price: keys were expected, found 3"),
    (served(price={"input": 1}), "models.m.price.output: missing"),
    (
        served(price={"input": -1, "output": 1}),
        "models.m.price.input: -1.0: Input should be greater than or equal to 0",
    ),
    (
        served(price={"input": 1, "output": 1, "cached": 1}),
        "models.m.price: unknown key 'cached'; did you mean 'cached_",
    ),
    (served(protocol="lveval"), "models.m.protocol: 'lveval': Input should be 'longflow' or 'lveval_api'"),
    (served(protocol="lveval_api", chat="none"), "models.m.protocol: lveval_api sends messages, beside chat: 'none'"),
    (served(serve="vllm serve"), "models.m.serve: names no {port}"),
    (served(serve="x {port}", base_url="http://a/v1"), "models.m.base_url: 'http://a/v1', beside serve"),
    (
        served(serve="x {port}", serve_timeout=0),
        "models.m.serve_timeout: 0: Input should be greater than or equal to 1",
    ),
    (served(serve=["x"]), "models.m.serve: ['x']: Input should be a valid string"),
    (served(api_calls=0), "models.m.api_calls: 0: Input should be greater than or equal to 1"),
    (served(api_key_env=""), "models.m.api_key_env: not the name of an environment variable"),
    (served(max_tokens_field="tokens"), "Input should be 'max_tokens' or 'max_completion_tokens'"),
    (served(tokenizer="tiktoken:gpt-4o"), "models.m.window: missing"),
    (served(gpu=1), "models.m.gpu: 1, beside api_calls: a client of a server runs without a GPU"),
    # predictions made elsewhere
    (elsewhere(), "models.m.path: /no/such/folder: no such folder or file"),
    (elsewhere(rows="unique"), "models.m.rows: 'unique': Input should be 'all' or 'distinct'"),
    (elsewhere(reasoning={"end": ""}), "models.m.reasoning.end: '': String should have at least 1 character"),
    (elsewhere(chat="none"), "models.m: unknown key 'chat'"),
    (elsewhere(pattern=""), "models.m.pattern: '': does not name {dataset}"),
    # the run
    (run(max_failures=-1), "run.max_failures: -1: Input should be greater than or equal to 0"),
    (
        run(max_failures="10%"),
        "run.max_failures: '10%': Input should be a valid integer, or: Input should be a valid num",
    ),
    (run(max_failures=1.5), "run.max_failures: 1.5: Value error, a whole number of records was expected, or a share"),
    (run(max_failures=True), "run.max_failures: True: "),
    (run(seed="x"), "run.seed: 'x': Input should be a valid integer"),
    (run(benchmarks="lveval"), "run.benchmarks: 'lveval': Input should be a valid list"),
    (run(settings=[]), "run.settings: nothing is chosen; name at least one of full"),
    (run(settings=["full", "full"]), "run.settings: 'full' is named twice"),
    (run(results=LONG), "run.results: 'xxx"),
    (run(resources="a\nb"), "run.resources: 'a\\nb': Value error, a folder was expected"),
    # benchmarks
    (lveval_with(repeats=0), "benchmarks.lveval.repeats: 0: Input should be greater than or equal to 1"),
    (lveval_with(repeats=1001), "benchmarks.lveval.repeats: 1001: Input should be less than or equal to 1000"),
    (lveval_with(repeats=3), "benchmarks.lveval.repeats: 3 answers of models.m would be equal, it answers greedily"),
    (lveval_with(datasets="cmrc_mixup"), "'cmrc_mixup': Input should be 'all', or: Input should be a valid list"),
    (lveval_with(code_similarity="fuzzy"), "Input should be 'difflib' or 'levenshtein'"),
    (lveval_with(prompts=["x"]), "benchmarks.lveval.prompts: ['x']: Input should be a valid dictionary"),
    (lveval_with(prompts={"cmrc_mixup": "{}{context}"}), "prompts.cmrc_mixup: names {}, which no record has"),
    (lveval_with(prompts={"cmrc_mixup": "{context!x}"}), "prompts.cmrc_mixup: gives {context} a format"),
    (lveval_with(revision="../../x"), "benchmarks.lveval.revision: '../../x' is no commit, tag or branch"),
    (lveval_with(max_new_tokens={"cmrc_mixup": 99_999}), "models.m.window: an answer of 99999 tokens leaves no room"),
    (build(run={"benchmarks": ["demo"]}, benchmarks={"demo": {"records": 0}}), "benchmarks.demo.records: 0: "),
    (build(run={"benchmarks": ["demo"]}, benchmarks={"demo": {"lengths": ["0"]}}), "demo has no level '0'; levels are"),
    (build(run={"benchmarks": ["demo"]}, benchmarks={"demo": {"lengths": [1.5]}}), "benchmarks.demo.lengths: [1.5]: "),
    # settings
    (setting({"kind": "summary", "piece_words": 0}), "settings.s.piece_words: 0: "),
    (
        setting({"kind": "summary", "prompt": "{context}"}),
        "settings.s.prompt: '{context}': Value error, names {context}",
    ),
    (setting({"kind": "summary", "top_n": 3}), "settings.s: unknown key 'top_n'"),
    (setting({"kind": "cot", "max_new_tokens": 0}, "longbench_v2"), "settings.s.max_new_tokens: 0: "),
    (
        setting({"kind": "cot", "max_new_tokens": 16384}, "longbench_v2"),
        "less 16256 for the setting s) leaves no prompt",
    ),
    (
        setting({"kind": "no_context", "rotations": "yes"}),
        "settings.s.rotations: 'yes': Input should be a valid boolean",
    ),
    (setting({"kind": "rag"}), "settings.s.retriever: missing (How chunks are ranked"),
    (setting({"kind": "rag", "retriever": "bm25_words", "gpu": 2}), "settings.s.gpu: 2: Input should be less than"),
    (setting({"kind": 3}), "settings.s.kind: missing; choose cot, no_context, rag, summary"),
    # sections
    (build(settings=[1]), "settings: keys were expected, found [1]"),
    (build(models="x"), "models: keys were expected, found 'x'"),
    ({}, "run.benchmarks: missing (Benchmarks to run, out of those known.)"),
]


def one_line(caught, words):
    """That an error is one line with these words."""
    text = str(caught.value)
    assert words in text
    assert "\n" not in text


@pytest.mark.parametrize(("merged", "words"), CONFIGURATIONS, ids=[words[:60] for _, words in CONFIGURATIONS])
def test_a_configuration_is_refused_before_any_job(merged, words):
    with pytest.raises(UserError) as caught:
        list(cells(config.parse(merged)))
    one_line(caught, words)


def test_the_base_of_those_configurations_is_right():
    for entry in (MODEL, SERVED):
        assert len(list(cells(config.parse(build(entry))))) == 55


@pytest.mark.parametrize("section", ["models", "settings"])
def test_a_key_where_its_variable_is_to_be_named_is_not_shown(section):
    key = "sk-proj-geheim"
    merged = served(api_key_env=key)
    if section == "settings":
        entry = {"kind": "rag", "retriever": "dense", "model": "m", "base_url": "http://here/v1", "api_key_env": key}
        merged = setting(entry)
    with pytest.raises(UserError) as caught:
        config.parse(merged)
    one_line(caught, ".api_key_env: not the name of an environment variable")
    assert "geheim" not in str(caught.value)


def test_a_password_in_an_address_that_is_none_is_not_shown():
    with pytest.raises(UserError) as caught:
        config.parse(served(base_url="me:geheim@localhost/v1"))
    assert "geheim" not in str(caught.value)


YAML = {
    "an object": ("run: !!python/object/apply:os.system ['exit']", "line 1, column 6: not YAML (could not determine"),
    "a tag": ("run: !secret x", "line 1, column 6: not YAML (could not determine a constructor for the tag '!secret')"),
    "a tab": ("run:\n\tlimit: 1", "line 2, column 1: not YAML (found character '\\t' that cannot start any token)"),
    "two documents": ("run: {}\n---\nmodels: {}", "line 2, column 1: not YAML (but found another document)"),
    "a zero byte": ("run: \0", "not YAML (unacceptable character #x0000"),
    "no date": ("run: {limit: 2024-13-45}", "a value cannot be read (month must be in 1..12); quote what is meant as"),
    "digits": ("run: {limit: " + "1" * 5000 + "}", "a value cannot be read (Exceeds the limit (4300 digits)"),
    "depth": ("run: " + "[" * 5000, "nested too deeply to be read"),
    "an alias of itself": ("models: &all {m: *all}", "configuration: nested without end"),
    "a list as key": ("? [a]\n: b", "line 1, column 3: not YAML (found unhashable key)"),
}


@pytest.mark.parametrize("what", YAML)
def test_a_configuration_file_that_cannot_be_read(tmp_path, what):
    text, words = YAML[what]
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        config.load([path])
    one_line(caught, words)
    assert what == "an alias of itself" or str(path) in str(caught.value)


def test_a_folder_is_no_configuration_file(tmp_path):
    with pytest.raises(UserError) as caught:
        config.load([tmp_path])
    one_line(caught, f"{tmp_path}: cannot be read (Is a directory)")


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


# What no file of rows may hold, wherever such files are read: of data, predictions, scores, records.

ROWS = {
    "depth": ('{"a": ' + "[" * 100_000, "a value{in} is nested too deeply to be read"),
    "digits": ('{"a": ' + "1" * 5000 + "}", "a whole number{in} has more digits than can be read"),
    "size": ('{"a": -1e999}', "-1e999{in} is larger than any number can be; a finite one was expected"),
    "infinity": ('{"a": Infinity}', "Infinity{in} is not JSON; null was expected"),
}


@pytest.mark.parametrize("what", ROWS)
def test_a_value_that_is_beyond_reading(tmp_path, what):
    text, words = ROWS[what]
    path = write(tmp_path, "rows.jsonl", '{"pred": "x", "answers": ["x"]}\n' + text + "\n")
    spec = json.loads(SPEC)
    for read in (
        lambda: list(jsonio.read_jsonl(path)),
        lambda: imported.take(str(path), str(tmp_path / "taken.jsonl"), 2, "cell"),
        lambda: score.run(str(path), spec, str(tmp_path / "score.json"), str(tmp_path / "score.jsonl")),
    ):
        with pytest.raises(UserError) as caught:
            read()
        one_line(caught, f"{path}, line 2: " + words.replace("{in}", ""))
    path = write(tmp_path, "rows.json", '[{"a": 1}, ' + text + "]")
    with pytest.raises(UserError) as caught:
        list(files.read_json_list(path))
    one_line(caught, f"{path}: " + words.replace("{in}", " in record 2"))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.json", "rows.jsonl"]


DATA = {
    "UTF-16": ('{"a": 1}\n'.encode("utf-16"), "line 1: not UTF-8 (byte 1)"),
    "gzip": (b"\x1f\x8b\x08\x00rows", "line 1: not UTF-8 (byte 2)"),
    "zero bytes": (b"\0\0\0\n", "line 1: not JSON (Expecting value, column 1)"),
    "CSV": (b"pred,answers\nx,y\n", "line 1: not JSON (Expecting value, column 1)"),
    "a list of rows": (b'[{"a": 1}]\n', "line 1: a JSON object was expected, found list"),
    "two rows in a line": (b'{"a": 1} {"a": 2}\n', "line 1: not JSON (Extra data, column 10)"),
}


@pytest.mark.parametrize("what", DATA)
def test_a_file_that_holds_no_rows(tmp_path, what):
    content, words = DATA[what]
    path = write(tmp_path, "rows.jsonl", content)
    with pytest.raises(UserError) as caught:
        imported.take(str(path), str(tmp_path / "out.jsonl"), 1, "cell")
    one_line(caught, f"{path}, {words}")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["rows.jsonl"]


NOISE = json.dumps({"input": hashlib.sha512(b"").hexdigest()}) + "\n"
"""A row that does not get much shorter in an archive."""


def archive(path, kind, member="loogle_CR_mixup_16k.jsonl", content=NOISE):
    """An archive with a member, and where in it the member's content begins."""
    with zipfile.ZipFile(path, "w", kind) as made:
        made.writestr(member, content)
    return bytearray(path.read_bytes()), 30 + len(member)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (zipfile.ZIP_DEFLATED, "damaged after record 0"),
        (zipfile.ZIP_BZIP2, "damaged after record 0"),
        (zipfile.ZIP_LZMA, "damaged after record 0"),
        ("encrypted", "not a readable zip archive (File 'loogle_CR_mixup_16k.jsonl' is encrypted"),
        ("method", "not a readable zip archive (That compression method is not supported)"),
        ("empty", "not a readable zip archive (File is not a zip file)"),
        ("folder", "not a readable zip archive"),
    ],
)
def test_an_archive_that_cannot_be_read(tmp_path, kind, words):
    path = tmp_path / "loogle_CR_mixup.zip"
    content, start = archive(path, kind if isinstance(kind, int) else zipfile.ZIP_DEFLATED)
    listed = content.find(b"PK\x01\x02")
    if kind == "encrypted":
        content[6] |= 1
        content[listed + 8] |= 1
    elif kind == "method":
        content[8] = content[listed + 10] = 99
    elif kind == "empty":
        content = b""
    else:
        content[start + 40 : start + 52] = b"\xff" * 12
    path.write_bytes(content)
    if kind == "folder":
        path.unlink()
        path.mkdir()
    task = benchmarks.load("lveval").task("loogle_CR_mixup")
    with pytest.raises(UserError) as caught:
        list(lveval.prepare(task, "16k", lveval.Options(), [str(path)]))
    one_line(caught, words)
    assert str(path) in str(caught.value)


def test_one_file_is_not_taken_for_two_cells(tmp_path):
    write(tmp_path, "cmrc_mixup.jsonl", "")
    with pytest.raises(UserError) as caught:
        list(cells(config.parse(elsewhere(path=str(tmp_path), pattern="{dataset}.jsonl"))))
    one_line(caught, "cmrc_mixup.jsonl would be the file of cmrc_mixup/16k and of cmrc_mixup/32k; a pattern: has to")


def test_a_single_data_set_with_levels_has_a_file_for_each(tmp_path):
    assert imported.default_patterns(["8k", "32k"], "own", single=True) == ["{dataset}_{length}.jsonl"]


# Models.


MODELS = {
    "no file": (None, "model.json: cannot be read (No such file or directory)"),
    "torn": ('{"identity": ', "model.json: not JSON (Expecting value, line 1)"),
    "a list": ("[]", "model.json: not a model.json; delete it to have the model looked for anew"),
    "digits": ('{"identity": ' + "1" * 5000 + "}", "model.json: a whole number has more digits than can be read"),
    "moved": ('{"identity": 1, "location": "/nowhere"}', "the model is not in /nowhere any more; delete"),
}


@pytest.mark.parametrize("what", MODELS)
def test_a_model_json_that_is_none(tmp_path, what):
    content, words = MODELS[what]
    path = tmp_path / "model.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError) as caught:
        models.load(path)
    one_line(caught, words)
    assert str(path) in str(caught.value)


FOLDERS = {
    "config.json torn": ({"config.json": "{"}, "config.json: not JSON"),
    "config.json a list": (
        {"config.json": "[]", "model.safetensors": (2).to_bytes(8, "little") + b"{}"},
        "config.json: a JSON object was expected",
    ),
    "config.json digits": (
        {"config.json": '{"n_ctx": ' + "9" * 5000 + "}"},
        "config.json: a whole number has more dig",
    ),
    "no weights": ({"config.json": "{}"}, "no weights (model.safetensors"),
    "an index that is none": (
        {"config.json": "{}", "model.safetensors.index.json": "[]"},
        "not an index of weight files",
    ),
    "an index to elsewhere": (
        {"config.json": "{}", "model.safetensors.index.json": '{"weight_map": {"a": "../../etc/passwd"}}'},
        "1 of 1 weight files are missing, first ../../etc/passwd",
    ),
}


@pytest.mark.parametrize("what", FOLDERS)
def test_a_model_folder_that_is_none(tmp_path, what):
    contents, words = FOLDERS[what]
    for name, content in contents.items():
        write(tmp_path, name, content)
    with pytest.raises(UserError) as caught:
        models.resolve({**MODEL, "path": str(tmp_path), "config_overrides": {}}, tmp_path / "out")
    one_line(caught, words)
    assert str(tmp_path) in str(caught.value)


# Commands and what they are given.

PARTS = {
    "a cell of four names": (lambda path: Cell.parse("demo/m/full/x"), "'demo/m/full/x' is no cell"),
    "a cell that leads away": (lambda path: Cell.parse("demo/m/full/../x/250"), "is no cell; a cell is"),
    "no shard": (lambda path: jobs.shard_of("1"), "--shard '1': a shard and their number were expected"),
    "a shard beyond the last": (lambda path: jobs.shard_of("2/2"), "--shard '2/2': a shard and their number"),
    "a batch that is not": (
        lambda path: jobs.batch(config.parse(small_run()), "standin", 7, "model.json"),
        "models.standin.batch: there is no batch 7; the cells are dealt into 1",
    ),
    "a model that is not": (
        lambda path: jobs.job(config.parse(small_run()), Cell("demo", "n", "full", "needle_en", "250"), "", "", {}),
        "models: no entry 'n'; known: other, standin",
    ),
    "a spec that is a list": (lambda path: specs.read_spec("[]"), "--spec: a JSON object was expected"),
    "a spec without a model": (lambda path: specs.read_spec("{}", "model"), "--spec: 'model' is missing"),
    "a summary that is a list": (
        lambda path: tables.read_summaries([write(path, "a.json", "[]")]),
        "a.json: not a score summary (a JSON object was expected); score the cell again",
    ),
    "a summary in part": (
        lambda path: tables.read_summaries([write(path, "a.json", '{"score": 1}')]),
        "a.json: not a score summary ('benchmark' is missing or malformed); score the cell again",
    ),
    "records without names": (
        lambda path: list(records.read_records(write(path, "a.jsonl", '{"id": 1}'))),
        "a.jsonl, record 1: not a record written by longflow",
    ),
    "records with odd spans": (
        lambda path: list(
            records.read_records(write(path, "a.jsonl", '{"id": 1, "question_id": 2, "evidence": [[1]]}'))
        ),
        "a.jsonl, record 1: not a record written by longflow",
    ),
    "a folder in place of records": (
        lambda path: list(records.read_records(path)),
        "cannot be read (Is a directory)",
    ),
    "results that are not": (
        lambda path: compare.Side.parse(str(path / "none")),
        "a folder of results was expected",
    ),
    "a prompt file that is a folder": (
        lambda path: files.read_prompt_file(longbench.TABLE, "LongBench/config/dataset2prompt.json", str(path)),
        "cannot be read (Is a directory)",
    ),
}


@pytest.mark.parametrize("what", PARTS)
def test_what_a_part_of_the_library_is_given(tmp_path, what):
    call, words = PARTS[what]
    with pytest.raises(UserError) as caught:
        call(tmp_path)
    one_line(caught, words)


def own_engine(folder, content, name):
    """An engine of one's own, looked for as a model and built."""
    write(folder, f"{name}.py", content)
    sys.path.insert(0, str(folder))
    try:
        entry = {"engine": f"{name}:Engine", "options": {}}
        models.resolve(entry, folder)
        load_engine(entry["engine"], entry, None)
    finally:
        sys.path.remove(str(folder))


def own_benchmark(path):
    data = {"path": path, "prompt": "{context}", "metric": "qa_f1_score", "max_new_tokens": 5}
    merged = build(run={"benchmarks": ["own"]}, benchmarks={"own": {"datasets_from": {"data": data}}})
    return config.parse(merged)


def dense(model_name):
    entry = {"kind": "rag", "retriever": "dense", "model": model_name}
    return setting_spec(config.parse(setting(entry)), "s")


OTHERS = {
    "an engine that is no Python": (lambda path: own_engine(path, "def (", "engine_a"), "'engine_a:Engine' cannot be"),
    "an engine that fails at once": (lambda path: own_engine(path, "1 / 0", "engine_b"), "'engine_b:Engine' cannot be"),
    "an engine that takes nothing": (
        lambda path: own_engine(path, "class Engine:\n    def __init__(self): pass", "engine_c"),
        "'engine_c:Engine'",
    ),
    "a model.json with a number for a place": (
        lambda path: models.load(write(path, "model.json", '{"identity": 1, "location": 3}')),
        "model.json: not a model.json",
    ),
    "a spec without end": (lambda path: specs.read_spec("[" * 100_000), "--spec: "),
    "a spec of digits": (lambda path: specs.read_spec("1" * 5000), "--spec: "),
    "a data set's path that is none": (lambda path: own_benchmark(f"{LONG}.jsonl"), "datasets_from.data.path"),
    "an embedding model's path that is none": (lambda path: dense(LONG), "settings.s.model"),
    "a prompt with a format": (
        lambda path: config.parse(lveval_with(prompts={"cmrc_mixup": "{context:>99}"})),
        "prompts.cmrc_mixup: ",
    ),
    "a prompt with a conversion": (
        lambda path: config.parse(lveval_with(prompts={"cmrc_mixup": "{context!r}"})),
        "prompts.cmrc_mixup: ",
    ),
}
"""What anybody's engine, model or file may bring."""


@pytest.mark.parametrize("what", OTHERS)
def test_what_others_wrote_is_one_line_too(tmp_path, what):
    call, words = OTHERS[what]
    with pytest.raises(UserError) as caught:
        call(tmp_path)
    one_line(caught, words)


def test_a_config_json_with_an_infinity_is_a_model_s(tmp_path):
    """Mamba's have one in time_step_limit."""
    write(tmp_path, "config.json", '{"time_step_limit": [0.0, Infinity]}')
    write(tmp_path, "model.safetensors", (2).to_bytes(8, "little") + b"{}")
    assert len(models.folder_digest(tmp_path)) == 64


def command(folder, name, *arguments, **environment):
    """A command as the workflow runs it: its exit status, what it printed, and its line of complaint."""
    done = subprocess.run(
        [sys.executable, "-m", f"scripts.{name}", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{TESTS}", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = done.stderr.splitlines()
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, lines[-1] if lines else ""


def refused(done, words):
    status, _, line = done
    assert status == 2
    assert line.startswith("error: ")
    assert words in line


def files_of(folder):
    """The bytes of all files in a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


SPEC = json.dumps(
    {
        **{"benchmark": "demo", "model": "m", "setting": "full", "dataset": "needle_en", "length": "250"},
        **{"metric": "qa_f1_score", "language": "en", "category": "QA", "n_expected": 1},
    }
)
"""What a score is made with."""


COMMANDS = {
    "predictions torn": (
        ["score", "--spec", SPEC, "--output", "out/a.json", "--records", "out/a.jsonl", "torn.jsonl"],
        "torn.jsonl, line 2: not JSON (Unterminated string starting at, column 2)",
    ),
    "predictions absent": (
        ["score", "--spec", SPEC, "--output", "out/a.json", "--records", "out/a.jsonl", "none.jsonl"],
        "none.jsonl: cannot be read (No such file or directory)",
    ),
    "a score below a file": (
        ["score", "--spec", SPEC, "--output", "torn.jsonl/a.json", "--records", "torn.jsonl/a.jsonl", "good.jsonl"],
        "torn.jsonl",
    ),
    "a spec that is none": (
        ["score", "--spec", "{", "--output", "out/a.json", "--records", "out/a.jsonl", "good.jsonl"],
        "--spec: not JSON",
    ),
    "a working directory that is not": (["show_config", "--directory", "none"], "--directory none: No such file"),
    "a configuration that is not": (
        ["preview", "--configfile", "none.yaml"],
        "none.yaml: cannot be read (No such file or directory)",
    ),
    "one configuration after another": (
        ["preview", "--configfile", "a.yaml", "--configfile", "b.yaml"],
        "--configfile is given twice; name all files after one, as for snakemake",
    ),
    "a journal that is not": (["journal", "stats", "none"], "none"),
    "results of nobody": (["compare", "out", "out"], "out: no tables are here"),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_ends_with_2_and_leaves_what_was_there(tmp_path, what):
    write(tmp_path, "good.jsonl", '{"pred": "x", "answers": ["x"]}\n')
    write(tmp_path, "torn.jsonl", '{"pred": "x", "answers": ["x"]}\n{"pre')
    write(tmp_path, "out/a.json", "earlier")
    write(tmp_path, "out/a.jsonl", "earlier")
    before = files_of(tmp_path)
    arguments, words = COMMANDS[what]
    refused(command(tmp_path, *arguments), words)
    assert files_of(tmp_path) == before


# What was answered stays answered.


def predict(cell, **environment):
    """Run the real command for a cell: as `command`."""
    process = cell.start(**environment)
    status = process.wait(timeout=60)
    said = cell.said.read_text()
    assert "Traceback" not in said
    return status, said, said.splitlines()[-1]


def test_records_that_are_torn_half_way_cost_no_answer(tmp_path):
    cell = Cellar(tmp_path, number=6)
    whole = cell.records.read_text()
    lines = whole.splitlines(keepends=True)
    cell.records.write_text("".join(lines[:4]) + lines[4][:40])
    refused(predict(cell), f"{cell.records}, line 5: not JSON")
    assert not cell.output.exists()
    cell.records.write_text(whole)
    assert predict(cell)[0] == 0
    assert cell.requests() == 6


def test_predictions_that_cannot_be_put_in_place_cost_no_answer(tmp_path):
    cell = Cellar(tmp_path, number=3)
    cell.output.mkdir(parents=True)
    refused(predict(cell), str(cell.output.name))
    assert cell.requests() == 3
    cell.output.rmdir()
    assert predict(cell)[0] == 0
    assert cell.requests() == 3


def test_results_below_a_file_are_refused_and_the_journal_is_elsewhere(tmp_path):
    cell = Cellar(tmp_path, number=2)
    (tmp_path / "results").write_text("a file")
    refused(predict(cell), "results")
    (tmp_path / "results").unlink()
    assert predict(cell)[0] == 0
    assert cell.requests() == 2


def test_a_server_that_refuses_half_way_costs_no_answer(tmp_path):
    entry = {**SERVED, "api_calls": 1, "max_retries": 0, "timeout": 20}
    with FakeServer({"number 3": ["401"]}) as server:
        entry["base_url"] = server.url
        cell = Cellar(tmp_path, {**entry, "window": 4096}, number=5, identity={"served": "small"})
        refused(predict(cell, OPENAI_API_KEY="sk-geheim-1234"), "model small")
        assert cell.kept() >= 3
        assert predict(cell, OPENAI_API_KEY="sk-geheim-1234")[0] == 0
        assert len(server.requests) == 5 + 1
    assert b"geheim" not in b"".join(files_of(tmp_path).values())


def test_a_shard_that_is_torn_is_named_and_costs_no_answer(tmp_path):
    cell = Cellar(tmp_path, number=2)
    assert predict(cell)[0] == 0
    before = cell.output.read_bytes()
    shard = write(tmp_path, "0-1.json", '{"failures": {')
    done = command(
        ROOT,
        *("predict", CELL.name, "--records", cell.records, "--model-file", cell.model_file, "--spec", cell.spec),
        *("--output", cell.output, "--shards", shard),
        LONGFLOW_CONFIG=str(tmp_path / "merged.json"),
    )
    refused(done, f"{shard}: not JSON")
    assert cell.output.read_bytes() == before
    assert cell.requests() == 2


def test_the_tables_are_of_at_least_sixty_inputs():
    table = [CONFIGURATIONS, YAML, ROWS, DATA, MODELS, FOLDERS, PARTS, COMMANDS]
    assert sum(map(len, table)) >= 60
