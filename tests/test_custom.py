"""Benchmarks that a configuration declares."""

import copy
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT, Workflow
from helpers_hub import FakeHub
from hypothesis import given, settings
from hypothesis import strategies as st

from longflow import benchmarks, cells, config
from longflow.benchmarks import custom
from longflow.errors import UserError
from longflow.jsonio import read_jsonl
from longflow.prompts import render
from longflow.score import score_cell

EXAMPLE = yaml.safe_load((ROOT / "configs/custom.yaml").read_text(encoding="utf-8"))
MODEL = {"engine": "standin:StandIn", "chat": "template", "window": 4096}
PROMPT = "{context} {input}"


def row(**more):
    return {"input": "Who?", "context": "Ann did.", "answers": ["Ann"], "length": 2, **more}


def write(path, *rows):
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in rows), encoding="utf-8")
    return str(path)


def dataset(path, **more):
    return {"path": str(path), "prompt": PROMPT, "metric": "qa_f1_score", "max_new_tokens": 8} | more


def whole(entry, name="contracts", **run):
    """A configuration that runs one benchmark of its own."""
    return {
        "run": {"benchmarks": [name], "models": ["standin"], **run},
        "benchmarks": {name: entry},
        "models": {"standin": MODEL},
    }


def parse(entry, **run):
    return config.parse(whole(entry, **run))


def fails(entry):
    with pytest.raises(UserError) as caught:
        parse(entry)
    return str(caught.value)


def records(made, name, length="full", benchmark="contracts"):
    """The records that `prepare` writes."""
    table, options = benchmarks.load(benchmark), made.options[benchmark]
    task = table.task(name)
    return list(table.module.prepare(task, length, options, table.module.sources(task, length, options, "resources")))


@pytest.fixture
def clauses(tmp_path):
    """A file of two records."""
    return write(tmp_path / "clauses.jsonl", row(kind="lease", _id="a"), row(context="Ben did.", answers=["Ben", "B"]))


# The benchmark.


def test_the_entry_and_the_file_make_the_benchmark(clauses):
    made = parse({"title": "Ours", "datasets_from": {"clauses": dataset(clauses, category="QA", wrap=False)}})
    table = benchmarks.load("contracts")
    task = table.task("clauses")
    assert (table.title, table.lengths, made.lengths("contracts")) == ("Ours", ("full",), ["full"])
    assert (task.n, task.records("full"), task.metric, task.category) == (2, 2, "qa_f1_score", "QA")
    assert made.prompt_template("contracts", "clauses") == PROMPT
    assert made.max_new_tokens("contracts", "clauses") == 8
    assert made.prompt_limit("standin", "contracts")[0] == 3500  # LV-Eval's for a window of 4096
    assert [cell.name for cell in cells.cells(made)] == ["contracts/standin/full/clauses/full"]


def test_records_keep_their_fields_and_names(clauses):
    first, second = records(parse({"datasets_from": {"clauses": dataset(clauses)}}), "clauses")
    assert first.fields == row(kind="lease", _id="a")
    assert first.question_id == "a"
    assert second.question_id not in ("", "a")
    assert [first.id, second.id] == ["clauses_full_0000", "clauses_full_0001"]


def test_blank_lines_are_no_records_and_a_changed_file_is_counted_again(tmp_path):
    path = tmp_path / "a.jsonl"
    entry = {"datasets_from": {"a": dataset(path)}}
    path.write_text("\n" + json.dumps(row()) + "\n\n" + json.dumps(row()), encoding="utf-8")
    assert len(records(parse(entry), "a")) == benchmarks.load("contracts").task("a").n == 2
    made = parse(entry)
    write(path, row(), row(), row())
    with pytest.raises(UserError, match="3 records, but there were 2 when the configuration was read"):
        records(made, "a")
    assert len(records(parse(entry), "a")) == 3


def test_levels_have_a_file_and_a_number_of_records_each(tmp_path):
    write(tmp_path / "a_8k.jsonl", row())
    write(tmp_path / "a_500.jsonl", row(), row(), row())
    made = parse({"lengths": ["8k", 500], "datasets_from": {"a": dataset(tmp_path / "a_{length}.jsonl")}})
    assert benchmarks.load("contracts").lengths == ("500", "8k")
    assert made.lengths("contracts") == ["500", "8k"]
    assert [len(records(made, "a", length)) for length in ("500", "8k")] == [3, 1]
    expected = {c.length: json.loads(cells.score_spec(made, c))["n_expected"] for c in cells.cells(made)}
    assert expected == {"500": 3, "8k": 1}


def test_what_is_not_run_is_not_looked_at(clauses, tmp_path):
    there = {"clauses": dataset(clauses), "absent": dataset(tmp_path / "absent.jsonl", prompt="{context} {odd}")}
    made = parse({"datasets": ["clauses"], "datasets_from": there, "prompts": {"absent": "{context} {even}"}})
    assert made.datasets("contracts") == ["clauses"]
    other = whole({"datasets_from": {"clauses": dataset(clauses)}})
    other["benchmarks"]["later"] = {"datasets_from": {"absent": there["absent"]}}
    assert config.parse(other).run.benchmarks == ["contracts"]


def test_own_prompts_may_name_the_records_fields(clauses):
    first = {"_id": "a", "kind": "lease"}
    entry = {"datasets_from": {"clauses": dataset(clauses)}, "prompts": {"clauses": "{kind}: {context}"}}
    assert parse(entry).prompt_template("contracts", "clauses") == "{kind}: {context}"
    text, _ = render(entry["prompts"]["clauses"], {**row(), **first})
    assert text == "lease: Ann did."
    entry["prompts"]["clauses"] = "{dataset}: {context}"
    assert "names {dataset}, which no record has" in fails(entry)


def test_two_configurations_of_one_name_do_not_mix(clauses):
    parse({"title": "One", "datasets_from": {"clauses": dataset(clauses)}})
    parse({"title": "Two", "datasets_from": {"other": dataset(clauses)}})
    assert (benchmarks.load("contracts").title, list(benchmarks.load("contracts").tasks)) == ("Two", ["other"])
    with pytest.raises(UserError, match="'contracts' is not a known benchmark"):
        config.parse({**whole({}), "benchmarks": {}})


def test_benchmarks_that_come_with_longflow_stay_what_they_are(clauses):
    with pytest.raises(UserError, match="unknown key 'datasets_from'"):
        config.parse(whole({"datasets_from": {"clauses": dataset(clauses)}}, name="lveval"))
    assert "contracts" not in benchmarks.names()


def spec_of(made, kind):
    (cell,) = cells.cells(made)
    if kind == "records":
        return cells.records_spec(made, cell.benchmark, cell.dataset, cell.length)
    return {"predict": cells.predict_spec, "score": cells.score_spec}[kind](made, cell)


@pytest.mark.parametrize(
    ("change", "stages"),
    [
        ({"prompt": "{context}"}, {"predict"}),
        ({"max_new_tokens": 9}, {"predict"}),
        ({"wrap": False}, {"predict"}),
        ({"metric": "rouge_score"}, {"score"}),
        ({"answers": "first"}, {"score"}),
        ({"clean": "first_line"}, {"score"}),
        ({"title": "A name"}, set()),
    ],
)
def test_a_change_concerns_only_the_stages_it_can_change(clauses, change, stages):
    first = parse({"datasets_from": {"clauses": dataset(clauses)}})
    specs = {kind: spec_of(first, kind) for kind in ("records", "predict", "score")}
    second = parse({"datasets_from": {"clauses": dataset(clauses, **change)}})
    assert {kind for kind, spec in specs.items() if spec_of(second, kind) != spec} == stages


def test_of_records_is_what_is_not_every_benchmark_s():
    options = benchmarks.load("demo").module.Options(prompts={"needle_en": "{context}"}, records=3)
    assert options.of_records("needle_en") == {"records": 3, "seed": options.seed, "documents": options.documents}


# Scores and tables.


def test_answers_and_classes_are_scored_as_the_entry_says(tmp_path):
    classes = ["lease", "loan"]
    path = write(tmp_path / "k.jsonl", row(answers=["loan"], all_classes=classes))
    given = dataset(path, metric="classification_score", clean="first_line")
    (cell,) = cells.cells(made := parse({"datasets_from": {"k": given}}))
    asked = records(made, "k")[0].fields
    rows = [{"pred": "\na loan\nor a lease", "answers": asked["answers"], "all_classes": asked["all_classes"]}]
    _, summary = score_cell(rows, json.loads(cells.score_spec(made, cell)))
    assert (summary["score"], summary["n_expected"]) == (100.0, 1)


def summaries(made, scores):
    found = [{"benchmark": c.benchmark, "dataset": c.dataset, "length": c.length} for c in cells.cells(made)]
    return [{**each, "score": score} for each, score in zip(found, scores, strict=True)]


def test_results_without_levels_have_longbench_s_layout(clauses):
    made = parse({"datasets_from": {"z": dataset(clauses), "a": dataset(clauses)}})
    found = summaries(made, [12.5, 50.0])
    assert custom.result_json(found) == '{\n    "z": 12.5,\n    "a": 50.0\n}'
    assert custom.result_csv(found) == "dataset_name,score\nz,12.5\na,50.0\n"
    assert json.loads(custom.result_json([])) == {}


def test_results_with_levels_have_lveval_s_layout(tmp_path):
    for length in ("500", "8k"):
        write(tmp_path / f"a_{length}.jsonl", row())
    made = parse({"lengths": ["500", "8k"], "datasets_from": {"a": dataset(tmp_path / "a_{length}.jsonl")}})
    found = summaries(made, [12.5, 50.0])
    assert json.loads(custom.result_json(found)) == {"a_8k": 50.0, "a_500": 12.5}
    assert custom.result_csv(found) == "dataset_name,500,8k\na,12.5,50.0\n"


# What can be wrong.


def changed(clauses, **more):
    return {"datasets_from": {"clauses": dataset(clauses) | more}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metric": "qa_f1"}, "clauses.metric: 'qa_f1' is no metric for such records; did you mean 'qa_f1_score'?"),
        ({"metric": "choice"}, "clauses.metric: 'choice' is no metric for such records"),
        ({"prompt": "{context} {klause}"}, "clauses.prompt: names {klause}, which no record has; fields are _id"),
        ({"prompt": "{input}"}, "clauses.prompt: does not name {context}"),
        ({"prompt": "{context"}, "clauses.prompt: not a template"),
        ({"prompt": "{context}" + "x" * 60_000}, "clauses.prompt: 60,009 bytes of template; at most 60,000"),
        ({"max_new_tokens": 0}, "clauses.max_new_tokens: 0:"),
        ({"max_new_tokens": "8"}, "clauses.max_new_tokens: '8':"),
        ({"promt": "{context}"}, "datasets_from.clauses: unknown key 'promt'; did you mean 'prompt'?"),
        ({"answers": "last"}, "clauses.answers: 'last':"),
        ({"path": "/nowhere/a.jsonl"}, "clauses.path: /nowhere/a.jsonl is no file"),
        ({"path": "/nowhere/a.json"}, "clauses.path: '/nowhere/a.json': a .jsonl file was expected"),
        ({"path": "/data/{level}.jsonl"}, "clauses.path: '/data/{level}.jsonl': a .jsonl file was expected"),
        ({"path": "/data/{length}.jsonl"}, "contracts.lengths: the paths have {length} in them; name the levels"),
        ({"metric": "classification_score"}, "record 1: classification_score needs 'all_classes'"),
    ],
)
def test_what_is_wrong_with_a_data_set_is_one_line(clauses, change, said):
    message = fails(changed(clauses, **change))
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"datasets_from": {}}, "benchmarks.contracts.datasets_from: {}:"),
        ({"datasets_from": None}, "benchmarks.contracts.datasets_from: None:"),
        ({"datasets_from": {"a": "a.jsonl"}}, "benchmarks.contracts.datasets_from.a: 'a.jsonl':"),
        ({"datasets_from": {"a": {"path": "a.jsonl"}}}, "benchmarks.contracts.datasets_from.a.prompt: missing"),
        ({"titel": "x"}, "benchmarks.contracts: unknown key 'titel'; did you mean 'title'?"),
        ({"lengths": ["8k"]}, "benchmarks.contracts.lengths: no path has {length} in it"),
        ({"datasets": ["clause"]}, "'clause' is not a data set of contracts; did you mean 'clauses'?"),
    ],
)
def test_what_is_wrong_with_an_entry_is_one_line(clauses, change, said):
    assert said in fails({**changed(clauses), **change})


def test_names_are_folders(clauses):
    assert "'a/b' is no name for a data set" in fails({"datasets_from": {"a/b": dataset(clauses)}})
    with pytest.raises(UserError, match="'a b' is no name for a benchmark"):
        config.parse(whole(changed(clauses), name="a b"))


def test_levels_are_all_data_sets_and_numbers(clauses, tmp_path):
    entry = changed(clauses)
    entry["datasets_from"]["more"] = dataset(tmp_path / "more_{length}.jsonl")
    assert "datasets_from.clauses.path: has no {length}" in fails({**entry, "lengths": ["8k"]})
    del entry["datasets_from"]["clauses"]
    assert "'long' is no level" in fails({**entry, "lengths": ["long"]})
    assert "more_8k.jsonl is no file" in fails({**entry, "lengths": ["8k"]})


def test_an_unknown_benchmark_without_data_sets_is_a_typing_error():
    with pytest.raises(UserError, match="'lvevall' is not known; did you mean 'lveval'"):
        config.parse({**whole({}), "benchmarks": {"lvevall": {}}})


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"context": 3}, "record 1: 'context' should be a str, found int"),
        ({"answers": "Ann"}, "record 1: 'answers' should be a list, found str"),
        ({"answers": []}, "record 1: 'answers' is empty"),
        ({"answer_keywords": ["Ann"]}, "record 1: 'answer_keywords' should be text, found list"),
        ({"all_classes": [1]}, "record 1: 'all_classes' should be a list of strings"),
    ],
)
def test_records_are_checked_the_first_at_once_the_others_when_prepared(tmp_path, bad, said):
    path = tmp_path / "a.jsonl"
    entry = {"datasets_from": {"a": dataset(path)}}
    write(path, row(**bad))
    assert said in fails(entry)
    write(path, row(), row(**bad))
    with pytest.raises(UserError, match=re.escape(said.replace("record 1", "record 2"))):
        records(parse(entry), "a")


def test_a_file_without_records_and_one_that_is_no_json(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n")
    assert "holds no record" in fails({"datasets_from": {"a": dataset(path)}})
    path.write_text("{")
    assert "line 1: not JSON" in fails({"datasets_from": {"a": dataset(path)}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(key=st.sampled_from([*custom.DataSet.model_fields, "odd"]), value=JSON)
@settings(max_examples=150, deadline=None)
def test_any_value_of_a_key_is_taken_or_refused_in_one_line(tmp_path_factory, key, value):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    if not path.exists():
        write(path, row())
    entry = {"datasets_from": {"a": {**dataset(path), key: value}}}
    message = ""
    try:
        parse(entry)
    except UserError as error:
        message = str(error)
    assert not message or message.startswith("benchmarks.contracts")


# Data sets of the hub, and of folders, read through `datasets`.

SQUAD = [
    {"question": "Who?", "document": f"{name} did.", "answer": {"text": [name], "start": [0]}, "kind": "lease"}
    for name in ("Ann", "Ben", "Cem")
]
COLUMNS = {"input": "question", "context": "document", "answers": "answer.text"}


def from_source(place, **more):
    given = dataset(None, source=str(place), records=3, fields=COLUMNS, prompt="{kind} {context} {input}") | more
    return {"datasets_from": {"a": {key: value for key, value in given.items() if key != "path"}}}


@pytest.fixture
def offline_cache(tmp_path, monkeypatch):
    """A cache of the library's own for the test."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def as_expected(made):
    asked = [(r.fields["input"], r.fields["context"], r.fields["answers"], r.fields["kind"]) for r in made]
    return asked == [("Who?", f"{name} did.", [name], "lease") for name in ("Ann", "Ben", "Cem")]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "saved", "saved dict"])
def test_a_folder_of_a_data_set_is_read(tmp_path, offline_cache, kind):
    import datasets

    folder = tmp_path / "data"
    folder.mkdir()
    made = datasets.Dataset.from_list(SQUAD)
    if kind == "jsonl":
        write(folder / "test.jsonl", *SQUAD)
        write(folder / "train.jsonl", *SQUAD[:1])
    elif kind == "parquet":
        made.to_parquet(str(folder / "test.parquet"))
    elif kind == "saved":
        made.save_to_disk(str(folder))
    else:
        datasets.DatasetDict({"test": made}).save_to_disk(str(folder))
    parsed = parse(from_source(folder))
    assert as_expected(records(parsed, "a"))
    # Its files are what the records are made of, so that a changed one is noticed.
    task = benchmarks.load("contracts").task("a")
    found = custom.sources(task, "full", parsed.options["contracts"], "resources")
    assert found == sorted(str(file) for file in folder.rglob("*") if file.is_file())
    assert (task.n, cells.expected_records(parsed, "contracts", "a", "full")) == (3, 3)


def test_levels_are_splits_or_subsets(tmp_path, offline_cache):
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "k8.jsonl", *SQUAD)
    write(folder / "k32.jsonl", *SQUAD[:2])
    files = "".join(f"  - split: level_{n}k\n    path: k{n}.jsonl\n" for n in (8, 32))
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: long\n  data_files:\n{files}---\n")
    entry = from_source(folder, subset="long", split="level_{length}", records={"8k": 3, "32k": 2})
    parsed = parse({"lengths": ["8k", "32k"], **entry})
    assert [len(records(parsed, "a", length)) for length in ("8k", "32k")] == [3, 2]
    assert benchmarks.load("contracts").task("a").records("32k") == 2
    short = parse({"lengths": ["8k", "32k"], **from_source(folder, subset="long", split="level_{length}", records=3)})
    with pytest.raises(UserError, match=r"it has 2 records, but benchmarks\.contracts.*\.records says 3"):
        records(short, "a", "32k")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"split": "dev"}, "split dev: the datasets library cannot read it (ValueError: Unknown split"),
        ({"subset": "odd"}, "cannot read it (ValueError: BuilderConfig 'odd' not found"),
        ({"source": "nobody/nothing"}, "data set nobody/nothing, split test: the datasets library cannot read it"),
        ({"records": 4}, "it has 3 records, but benchmarks.contracts.datasets_from.a.records says 4"),
        (
            {"fields": {**COLUMNS, "input": "ask"}},
            "record 1: no column 'ask' for 'input'; there are question, document",
        ),
        ({"fields": {**COLUMNS, "answers": "answer.txt"}}, "record 1: no column 'answer.txt' for 'answers'"),
        ({"fields": {"input": "question"}}, "record 1: 'context' should be a str, found NoneType"),
        ({"prompt": "{context} {odd}"}, "benchmarks.contracts: the prompt of a names {odd}, which no record has"),
    ],
)
def test_what_the_library_or_a_record_does_not_have_is_one_line(tmp_path, offline_cache, change, said):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "test.jsonl", *SQUAD)
    with pytest.raises(UserError) as caught:
        records(parse(from_source(tmp_path / "data", **change)), "a")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path": "a.jsonl"}, "datasets_from.a: has a path and a source; one of them"),
        ({"records": None}, "datasets_from.a.records: missing"),
        ({"records": 0}, "datasets_from.a.records: 0: a number above 0"),
        ({"source": None}, "datasets_from.a.records: goes with source"),
        ({"split": "{length}"}, "contracts.lengths: the paths have {length} in them; name the levels"),
        ({"source": None, "records": None, "fields": {}}, "datasets_from.a.records: goes with source"),
    ],
)
def test_a_source_says_where_and_how_many(change, said):
    given = from_source("org/name")["datasets_from"]["a"] | change
    assert said in fails({"datasets_from": {"a": given}})
    given = dataset(None)
    assert "datasets_from.a.path: missing" in fails({"datasets_from": {"a": {**given, "path": None}}})
    del given["path"]
    assert "datasets_from.a.path: missing" in fails({"datasets_from": {"a": given}})
    levels = from_source("org/name", split="{length}", records={"8k": 2})
    assert "datasets_from.a.records: says nothing of 32k" in fails({"lengths": ["8k", "32k"], **levels})


def test_another_revision_or_split_is_other_records():
    specs = [
        spec_of(parse(from_source("org/name", **more)), "records") for more in ({}, {"revision": "v1"}, {"split": "b"})
    ]
    assert len(set(specs)) == 3


class DataHub(FakeHub):
    """The loopback hub with what `datasets` asks beside: names of revisions in addresses."""

    def _handler(hub):
        class Handler(super()._handler()):
            def _answer(self, body):
                for name in ("v1", "main"):
                    self.path = self.path.replace(f"/resolve/{name}/", f"/resolve/{hub.commit}/")
                return super()._answer(body)

        return Handler


def read_from_hub(url, home, offline, revision):
    """Rows that `datasets` gives in a process of its own, since it reads its environment when it is imported."""
    code = (
        "import json, sys\n"
        "from longflow.benchmarks import hub_rows\n"
        "from longflow.errors import UserError\n"
        "try: print(json.dumps(list(hub_rows.read('org/tiny', None, 'test', sys.argv[1]))))\n"
        "except UserError as error: print(json.dumps(str(error)))\n"
    )
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_OFFLINE": offline}
    environment |= {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    for name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_TOKEN"):
        environment.pop(name, None)
    command = [sys.executable, "-c", code, revision]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_data_set_of_the_hub_is_read_and_found_again_offline(tmp_path):
    content = "".join(json.dumps(each) + "\n" for each in SQUAD).encode()
    hub = DataHub({"test.jsonl": content, "README.md": b"Three questions."}, kind="datasets")
    try:
        assert read_from_hub(hub.url, tmp_path, "0", "v1") == SQUAD
        assert "test.jsonl" in hub.fetched
        hub.fetched.clear()
        assert read_from_hub(hub.url, tmp_path, "1", "v1") == SQUAD
        # The library alone would give what is in its cache whatever was asked for.
        assert "not revision" in read_from_hub(hub.url, tmp_path, "1", "f" * 40)
        assert not hub.fetched
    finally:
        hub.close()


@pytest.mark.slow
def test_a_data_set_of_the_hub_is_prepared_by_the_workflow(tmp_path):
    content = "".join(json.dumps(each) + "\n" for each in SQUAD).encode()
    hub = DataHub({"test.jsonl": content, "README.md": b"Three questions."}, kind="datasets")
    workflow = Workflow(tmp_path, whole(from_source("org/tiny", revision="v1")))
    here = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}
    try:
        jobs = workflow.run("download", **here, NO_PROXY="127.0.0.1", no_proxy="127.0.0.1").jobs
    finally:
        hub.close()
    assert jobs == {"prepare": 1, "model": 1}
    rows = list(read_jsonl(tmp_path / "resources/records/contracts/a/full.jsonl"))
    assert [row["answers"] for row in rows] == [["Ann"], ["Ben"], ["Cem"]]
    assert workflow.run("download").jobs == {}


@pytest.mark.slow
def test_a_folder_of_a_data_set_runs_through_the_workflow(tmp_path):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "test.jsonl", *SQUAD)
    workflow = Workflow(tmp_path, whole(from_source("data")))
    workflow.run(HF_HOME=str(tmp_path / "hub"))
    assert workflow.counted()["requests"] == 3
    assert workflow.run().jobs == {}
    write(tmp_path / "data" / "test.jsonl", *SQUAD[:2], {**SQUAD[2], "question": "Which?"})
    assert workflow.run(HF_HOME=str(tmp_path / "hub")).jobs["prepare"] == 1
    assert workflow.counted()["requests"] == 1


# The documented example.


def test_the_documentation_shows_the_example():
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/custom.md").read_text(encoding="utf-8"), re.DOTALL)
    assert yaml.safe_load(blocks[0])["benchmarks"] == EXAMPLE["benchmarks"]
    for block in blocks:
        for entry in yaml.safe_load(block)["benchmarks"].values():
            custom.Options.model_validate(entry)


def test_the_documentation_names_every_key():
    text = (ROOT / "docs/custom.md").read_text(encoding="utf-8")
    for name in [*custom.DataSet.model_fields, *custom.Options.model_fields]:
        assert f"`{name}`" in text


def test_the_example_is_a_whole_configuration(monkeypatch):
    monkeypatch.chdir(ROOT)
    made = config.load([ROOT / "configs/custom.yaml"])
    assert len(records(made, "clauses")) == len(records(made, "kinds")) == 4


def example(folder):
    """The example as a workflow, with the stand-in for a model."""
    shutil.copytree(ROOT / "docs/examples", folder / "docs/examples")
    given = copy.deepcopy(EXAMPLE)
    given["run"]["models"] = ["standin"]
    given["models"] = {"standin": {**MODEL, "options": {"say": "a lease for five years"}}}
    return Workflow(folder, given)


@pytest.mark.slow
def test_the_example_runs(tmp_path):
    workflow = example(tmp_path)
    workflow.run()
    assert workflow.counted()["requests"] == 8
    folder = tmp_path / "results/contracts"
    table = json.loads((folder / "tables/contracts/standin/full/result.json").read_text())
    # "five years" is all of the fourth answer and two of the four words said without the article; no other answer
    # shares a word. Of the four kinds the first is said.
    assert table == {"clauses": round(100 * (2 * 0.5 / 1.5) / 4, 2), "kinds": 25.0}
    protocol = json.loads((folder / "tables/contracts/standin/full/protocol.json").read_text())
    assert protocol["data"]["datasets_from"]["clauses"]["path"] == "docs/examples/clauses.jsonl"
    assert (folder / "plots/contracts/score_by_length.svg").exists()
    header, line = (folder / "leaderboard/contracts.csv").read_text().splitlines()[:2]
    assert "standin" in line
    assert "overall" in header
    assert workflow.run().jobs == {}
    # Scoring anew asks no model; a record more is one request more.
    workflow.config["benchmarks"]["contracts"]["datasets_from"]["clauses"]["answers"] = "first"
    assert "predict" not in workflow.run().jobs
    path = tmp_path / "docs/examples/clauses.jsonl"
    path.write_text(path.read_text() + json.dumps(row(kind="lease", _id="new")) + "\n")
    workflow.counted()
    assert workflow.run().jobs["prepare"] == 1
    assert workflow.counted()["requests"] == 1


@pytest.mark.slow
def test_levels_run_under_any_name(tmp_path):
    for length in ("300", "2k"):
        write(tmp_path / f"a_{length}.jsonl", *[row(context=f"{i} did.") for i in range(2)])
    entry = {"lengths": ["300", "2k"], "datasets_from": {"a": dataset("a_{length}.jsonl")}}
    workflow = Workflow(tmp_path, whole(entry, name="our-own.1"))
    workflow.run()
    table = json.loads((tmp_path / "results/tables/our-own.1/standin/full/result.json").read_text())
    assert set(table) == {"a_300", "a_2k"}
    assert (tmp_path / "results/leaderboard/our-own.1.csv").read_text().splitlines()[0].count("300,2k,overall") == 1
