"""LongBench, LongBench-E and LongBench v2: their tables, what their files look like, and their results' layouts."""

import functools
import hashlib
import http.server
import json
import threading
import zipfile
from collections import Counter

import pytest
from conftest import TESTS
from hypothesis import given, settings
from hypothesis import strategies as st

from longflow import benchmarks, github
from longflow.benchmarks import files, longbench, longbench_e, longbench_v2
from longflow.errors import UserError
from longflow.jsonio import dump_line, read_json, read_jsonl
from longflow.prompts import render
from longflow.score import score_cell

GOLDEN = json.loads((TESTS / "data/golden_vectors.json").read_text(encoding="utf-8"))
COMMIT = "2e00731f8d0bff23dc4325161044d0ed8af94c1e"
BOTH = ["longbench", "longbench_e"]
V2 = benchmarks.load("longbench_v2").task("longbench_v2")


def reference(shared, name):
    return read_json(shared / "reference" / name)


@pytest.fixture
def clone(tmp_path, shared):
    """The prompt files of THUDM/LongBench, byte for byte: the sums in the tables are the judges."""
    folder = tmp_path / "clone"
    (folder / "LongBench/config").mkdir(parents=True)
    (folder / "prompts").mkdir()
    prompts = {name: task["prompt"] for name, task in reference(shared, "longbench_tasks.json")["tasks"].items()}
    text = json.dumps(prompts, ensure_ascii=False, indent=4)
    (folder / "LongBench/config/dataset2prompt.json").write_bytes(text.encode())
    for name, task in reference(shared, "longbench_v2_tasks.json")["tasks"].items():
        (folder / f"prompts/{name}.txt").write_bytes(task["prompt"].encode())
    return folder


# The tables.


def test_longbench_s_table_is_the_reference_s_field_by_field(shared):
    table, given = benchmarks.load("longbench"), reference(shared, "longbench_tasks.json")
    meta = given["_meta"]
    assert list(table.tasks) == meta["dataset_order"]
    assert table.table["categories"] == meta["category_order"]
    assert f"{table.table['repository']} @ {table.table['commit']}" in meta["source"]
    assert sum(task.n for task in table.tasks.values()) == meta["totals"]["n_samples"]
    for name, task in table.tasks.items():
        assert_same_task(task, given["tasks"][name])
        assert task.n == given["tasks"][name]["n_samples"]
        assert task.extra["mean_length"] == given["tasks"][name]["avg_len"]


def test_longbench_e_s_table_is_the_reference_s_field_by_field(shared):
    table, given = benchmarks.load("longbench_e"), reference(shared, "longbench_tasks.json")
    assert list(table.tasks) == given["_meta"]["dataset_order_e"]
    assert sum(task.n for task in table.tasks.values()) == given["_meta"]["totals"]["n_samples_e"]
    assert set(longbench_e.BUCKETS) == set(given["_meta"]["length_buckets_e"])
    for name, task in table.tasks.items():
        assert_same_task(task, given["tasks"][name])
        assert task.n == given["tasks"][name]["n_samples_e_total"]
        assert task.extra["groups"] == longbench_e.GROUPS[name] == given["tasks"][name]["n_samples_e"]


def assert_same_task(task, given):
    extra = task.extra
    ours = {
        "max_new_tokens": task.max_new_tokens, "metric": task.metric, "language": task.language,
        "category": task.category, "display_name": extra["title"], "code_languages": extra.get("code_languages"),
        "first_line_only": extra.get("clean") == "first_line", "chat_template": extra.get("wrap", True),
        "extra_stop_newline": extra.get("stop_newline", False), "min_one_new_token": extra.get("min_new_tokens") == 1,
        "retrieval_dataset": extra.get("retrieval", False), "uses_all_classes": extra.get("all_classes", False),
    }  # fmt: skip
    assert ours == {key: given[key] for key in ours}
    assert (task.prompt, extra["answers"]) == (None, "best")


def test_longbench_v2_s_table_is_the_reference_s(shared):
    table, given = benchmarks.load("longbench_v2"), reference(shared, "longbench_v2_tasks.json")
    meta, plain = given["_meta"], given["tasks"]["0shot"]
    groups = {name: n for name, n in meta["sizes"].items() if name not in ("total", "_evidence")}
    groups |= {f"domain: {name}": n for name, n in meta["domains"].items() if name != "_evidence"}
    assert longbench_v2.GROUPS["longbench_v2"] == V2.extra["groups"] == groups
    assert (V2.n, V2.max_new_tokens, V2.language) == (meta["sizes"]["total"], plain["max_new_tokens"], "en")
    assert table.table["revision"] == meta["hf"]["revision_seen"]
    assert table.table["temperature"] == plain["temperature"]
    assert table.table["answer_tokens"] == {name: task["max_new_tokens"] for name, task in given["tasks"].items()}
    assert list(longbench_v2.PLACEHOLDERS) == meta["replace_order"]
    assert table.table["prompt_files"] == {
        f"prompts/{name}.txt": hashlib.sha256(task["prompt"].encode()).hexdigest()
        for name, task in given["tasks"].items()
    }


def test_groups_of_the_real_records_are_the_tables(shared):
    for name, expected in longbench_e.GROUPS.items():
        rows = read_jsonl(shared / f"cases/longbench_e/llama2-7b-chat-4k/{name}.jsonl")
        assert Counter(group for row in rows for group in longbench_e.groups_of(row)) == expected
    rows = read_jsonl(shared / "cases/records/longbench_v2_503_nocontext.jsonl")
    found = Counter(group for row in rows for group in longbench_v2.groups_of(row))
    assert found == longbench_v2.GROUPS["longbench_v2"]


@pytest.mark.parametrize("name", ["longbench", "longbench_e", "longbench_v2"])
def test_means_name_cells_groups_or_means_that_there_are(name):
    table = benchmarks.load(name)
    module = table.module
    known = set(module.MEANS)
    for dataset, task in table.tasks.items():
        groups = [*task.extra.get("groups", {}), *(["compensated"] if task.metric == "choice" else [])]
        known |= {f"{dataset}/full"} | {f"{dataset}/full/{group}" for group in groups}
    assert all(set(members) <= known and members for members in module.MEANS.values())
    assert set(module.COLUMNS) <= set(module.MEANS)


def mean(means, name, scores):
    """The mean of a name's members by the contract: a member is a score or another mean."""
    if name not in means:
        return scores[name]
    values = [mean(means, member, scores) for member in means[name]]
    return sum(values) / len(values)


def test_published_averages_of_longbench_follow_from_the_published_scores(shared):
    published = reference(shared, "published_scores.json")["longbench"]
    title = {task.extra["title"]: name for name, task in benchmarks.load("longbench").tasks.items()}
    compared = 0
    for language, average, key in (
        ("en", "English", "categories_english"),
        ("zh", "Chinese", "categories_chinese"),
    ):
        for model, row in published[key].items():
            scores = {f"{title[name]}/full": score for name, score in published["per_dataset"][model].items()}
            for name, value in row.items():
                ours = mean(longbench.MEANS, average if name == "Avg" else f"{language}/{name}", scores)
                assert abs(ours - value) <= 0.07, (model, language, name)
                compared += 1
    assert compared == 2 * 8 * 7


# Results.


def summary_of(benchmark, dataset, rows, model="m"):
    task = benchmarks.load(benchmark).task(dataset)
    spec = {
        "benchmark": benchmark, "model": model, "setting": "full", "dataset": dataset, "length": "full",
        "metric": task.metric, "language": task.language, "category": task.category, "n_expected": task.n,
        "answers": task.extra["answers"], "clean": task.extra.get("clean"),
        "rounding": benchmarks.load(benchmark).table.get("rounding", "python"),
        "groups": task.extra.get("groups", {}), "rows": "all", "rouge_overflow": "reference",
        "code_similarity": "difflib", "code": "",
    }  # fmt: skip
    return score_cell(rows, spec)[1]


def test_longbench_results_are_the_reference_s_byte_for_byte():
    golden = GOLDEN["longbench_end_to_end"]
    names = [name.removesuffix(".jsonl") for name in golden["pred"]]
    summaries = [summary_of("longbench", name, golden["pred"][f"{name}.jsonl"]) for name in names]
    scores = golden["result_json_unordered"]
    order = [name for name in benchmarks.load("longbench").tasks if name in scores]
    assert longbench.result_json(summaries) == json.dumps({name: scores[name] for name in order}, indent=4)
    assert longbench.result_csv(summaries).splitlines() == [
        "dataset_name,score",
        *(f"{name},{scores[name]}" for name in order),
    ]


def test_longbench_e_results_are_the_reference_s_but_for_nan():
    golden = GOLDEN["longbench_end_to_end"]
    summaries = [
        summary_of("longbench_e", name.removesuffix(".jsonl"), rows) for name, rows in golden["pred_e"].items()
    ]
    numbers = json.loads(golden["result_e_json_text"])
    wanted = {name: {k: None if v != v else v for k, v in row.items()} for name, row in numbers.items()}
    order = ["qasper", "hotpotqa"]  # the benchmark's; the reference has the file system's
    text = longbench_e.result_json(summaries)
    assert text == json.dumps({name: wanted[name] for name in order}, indent=4)
    assert '"8k+": null' in text
    assert longbench_e.result_csv(summaries) == (
        "dataset_name,0-4k,4-8k,8k+\nqasper,100.0,,\nhotpotqa,100.0,33.33,100.0\n"
    )


def test_longbench_v2_results_are_the_columns_of_the_reference_s_result_txt():
    golden = GOLDEN["longbench_v2_end_to_end"]
    ((name, rows),) = golden["results"].items()
    summary = summary_of("longbench_v2", "longbench_v2", rows, name.removesuffix(".jsonl"))
    assert longbench_v2.result_csv([summary]) == golden["result_txt"].replace("\t", ",") + "\n"
    head, values = (line.split("\t")[1:] for line in golden["result_txt"].splitlines())
    wanted = dict(zip(head, map(float, values), strict=True))
    assert longbench_v2.result_json([summary]) == json.dumps(wanted, indent=4)


def test_real_predictions_for_longbench_v2_give_the_expected_table(shared):
    folder = shared / "cases/longbench_v2/predictions"
    lines = [line.split("\t")[:-1] for line in (folder / "expected_result.txt").read_text().splitlines()]
    wanted = "".join(",".join("" if field == "none" else field for field in line) + "\n" for line in lines)
    runs = {line[0]: list(read_jsonl(folder / f"{line[0]}.jsonl")) for line in lines[1:]}
    summaries = [summary_of("longbench_v2", "longbench_v2", rows, name) for name, rows in runs.items()]
    assert longbench_v2.result_csv(summaries) == wanted


def test_an_empty_group_of_longbench_v2_is_null_and_an_empty_field():
    summary = summary_of("longbench_v2", "longbench_v2", [{"pred": "A", "answer": "A", "difficulty": "easy"}])
    figures = json.loads(longbench_v2.result_json([summary]))
    assert figures == {"Overall": 100.0, "Easy": 100.0, "Hard": None, "Short": None, "Medium": None, "Long": None}
    assert longbench_v2.result_csv([summary]).splitlines()[1] == "m,100.0,100.0,,,,"


def test_rows_without_what_a_group_needs_are_in_none():
    assert longbench_e.groups_of({}) == longbench_e.groups_of({"length": None}) == ()
    assert [longbench_e.groups_of({"length": n}) for n in (3999, 4000, 7999, 8000)] == [
        ("0-4k",), ("4-8k",), ("4-8k",), ("8k+",)
    ]  # fmt: skip
    assert longbench_v2.groups_of({}) == ()
    row = {"difficulty": "easy", "length": "long", "domain": "Law"}
    assert longbench_v2.groups_of(row) == ("easy", "long", "domain: Law")


# Prompt limits.


def test_prompt_limits_are_the_references():
    windows = {4096: 3500, 8192: 7500, 16384: 15500, 32768: 31500}
    for module in (longbench, longbench_e):
        assert {window: module.prompt_limit(window) for window in windows} == windows
    assert longbench_v2.prompt_limit(131072) == longbench_v2.prompt_limit(200_000) == 120_000
    for window in (2048, 8192, 120_000):
        assert longbench_v2.prompt_limit(window) < window - V2.max_new_tokens


# LongBench's records.


def row(index, dataset="trec", **changes):
    made = {
        "input": f"问 {index}?", "context": "{braces} and $Q$\nlast", "answers": ["yes", "no"], "length": 4321 + index,
        "dataset": dataset, "language": "en", "all_classes": ["yes", "no"], "_id": f"{index:048x}",
    }  # fmt: skip
    return {**made, **changes}


def lines(count, **changes):
    return "".join(dump_line(row(i, **changes)) for i in range(count))


OWN = {"prompts": {"trec": "{context}{input}"}}
"""Options of a run with a prompt of its own, which needs no prompt file."""


@pytest.mark.parametrize("layout", ["flat", "data", "zip"])
@pytest.mark.parametrize("name", BOTH)
def test_each_local_layout_gives_the_same_records(tmp_path, name, layout):
    table = benchmarks.load(name)
    task = table.task("trec")
    file, content = ("trec.jsonl", lines(200)) if name == "longbench" else ("trec_e.jsonl", lines(300))
    if layout == "zip":
        with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
            archive.writestr("data/trec.jsonl", lines(200))
            archive.writestr("data/trec_e.jsonl", lines(300))
    else:
        folder = tmp_path / ("" if layout == "flat" else "data")
        folder.mkdir(exist_ok=True)
        (folder / file).write_text(content, encoding="utf-8")
    options = table.module.Options(source=str(tmp_path), **OWN)
    found = table.module.sources(task, "full", options, "resources")
    records = list(table.module.prepare(task, "full", options, found))
    assert len(records) == task.n == (200 if name == "longbench" else 300)
    assert (records[7].id, records[7].question_id) == ("trec_0007", f"{7:048x}")
    assert records[7].fields == row(7)


@pytest.mark.parametrize("name", BOTH)
def test_longbench_s_downloads_are_shared_and_tell_where_they_come_from(name):
    module = benchmarks.load(name).module
    found = module.sources(benchmarks.load(name).task("qasper"), "full", module.Options(), "R")
    assert found == ["R/downloads/longbench/main/data.zip", f"R/downloads/longbench/{COMMIT}/dataset2prompt.json"]
    assert module.download("data.zip", "main") == {"hub": "THUDM/LongBench", "revision": "main", "file": "data.zip"}
    assert module.download("dataset2prompt.json", COMMIT) == {
        "github": "THUDM/LongBench", "commit": COMMIT, "file": "LongBench/config/dataset2prompt.json",
        "sha256": "56d22ad4f382169c2b8a11ff4c982a4a1bea096c8152b0f0b85b64686b157c30",
    }  # fmt: skip
    pinned = module.sources(benchmarks.load(name).task("qasper"), "full", module.Options(revision="abc"), "R")
    assert pinned[0] == "R/downloads/longbench/abc/data.zip"


def test_what_is_missing_says_where_it_was_looked_for(tmp_path):
    task = benchmarks.load("longbench_e").task("lcc")
    with pytest.raises(UserError) as caught:
        longbench_e.sources(task, "full", longbench_e.Options(source=str(tmp_path)), "R")
    text = str(caught.value)
    assert text.startswith(f"benchmarks.longbench_e.source: {tmp_path} has no records of lcc; looked for ")
    assert all(f"{tmp_path}/{place}" in text for place in ("lcc_e.jsonl", "data/lcc_e.jsonl", "data.zip"))
    (tmp_path / "lcc_e.jsonl").touch()
    with pytest.raises(UserError, match="is no clone of THUDM/LongBench: it has no LongBench/config/dataset2prompt"):
        longbench_e.sources(task, "full", longbench_e.Options(source=str(tmp_path), prompts_from=str(tmp_path)), "R")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lines(199), "199 records, but trec has 200; the file is not whole"),
        (lines(201), "201 records, but trec has 200"),
        ("", "0 records, but trec has 200"),
        (lines(2) + '{"input": "torn', "line 3: not JSON"),
        (lines(2) + dump_line(row(2, context=None)), "record 3: 'context' should be a str, found NoneType"),
        (lines(2) + dump_line(row(2, answers=[1])), "record 3: 'answers' should be a list of strings"),
        (lines(2) + dump_line(row(2, length="5")), "record 3: 'length' should be a int, found str"),
        (lines(2) + dump_line(row(2, length=True)), "record 3: 'length' should be a int, found bool"),
        (lines(2) + dump_line(row(2, all_classes=None)), "record 3: 'all_classes' should be a list, found NoneType"),
        (lines(2) + dump_line({k: v for k, v in row(2).items() if k != "_id"}), "record 3: '_id' should be a str"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_record(tmp_path, content, words):
    path = tmp_path / "trec.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        list(longbench.prepare(benchmarks.load("longbench").task("trec"), "full", longbench.Options(), [str(path)]))
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_prompt_file_of_another_commit_is_refused(tmp_path):
    data, prompts = tmp_path / "trec.jsonl", tmp_path / "dataset2prompt.json"
    data.write_text(lines(200), encoding="utf-8")
    prompts.write_text('{"trec": "{context}"}')
    with pytest.raises(UserError, match=r"dataset2prompt\.json: not LongBench/config/dataset2prompt\.json of THUDM/Lo"):
        list(
            longbench.prepare(
                benchmarks.load("longbench").task("trec"), "full", longbench.Options(), [str(data), str(prompts)]
            )
        )


@pytest.mark.parametrize("name", BOTH)
def test_each_prompt_renders_as_the_reference_s(tmp_path, shared, clone, name):
    table, given = benchmarks.load(name), reference(shared, "longbench_tasks.json")["tasks"]
    for dataset, task in table.tasks.items():
        path = tmp_path / longbench.file_name(task)
        path.write_text("".join(dump_line(row(i, dataset)) for i in range(task.n)), encoding="utf-8")
        options = table.module.Options(source=str(tmp_path), prompts_from=str(clone))
        record = next(
            iter(table.module.prepare(task, "full", options, table.module.sources(task, "full", options, "")))
        )
        ours, start = render(record.fields["template"], record.fields)
        theirs = given[dataset]["prompt"].format(**row(0, dataset))
        assert sha256(ours) == sha256(theirs)
        assert ours[start:].startswith(record.fields["context"])


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("dataset", ["multi_news", "multifieldqa_zh", "passage_retrieval_zh"])
def test_real_records_pass_the_checks_and_render(shared, clone, dataset):
    task = benchmarks.load("longbench").task(dataset)
    options = longbench.Options(source=str(shared / "cases/records/longbench"), prompts_from=str(clone))
    found = longbench.sources(task, "full", options, "R")
    records = []
    with pytest.raises(UserError, match=f"40 records, but {dataset} has 200"):
        collect(longbench.prepare(task, "full", options, found), records)
    rows = list(read_jsonl(found[0]))
    template = reference(shared, "longbench_tasks.json")["tasks"][dataset]["prompt"]
    assert len(records) == len(rows) == 40
    for record, real in zip(records, rows, strict=True):
        assert record.fields == {**real, "template": template}
        assert render(record.fields["template"], record.fields)[0] == template.format(**real)


def collect(records, into):
    """All records that come before an error."""
    for record in records:
        into.append(record)


# LongBench v2's records.


def question(index, **changes):
    made = {
        "_id": f"{index:024x}", "domain": "Law", "sub_domain": "x", "difficulty": "easy", "length": "short",
        "question": f" what {index}? ", "choice_A": "a\n", "choice_B": "b", "choice_C": "c", "choice_D": "d",
        "answer": "B", "context": f"\n\nthe {{document}} {index}  ",
    }  # fmt: skip
    return {**made, **changes}


def questions(count, last=None):
    rows = [question(i) for i in range(count)]
    return rows if last is None else [*rows[:-1], {**rows[-1], **last}]


def v2(path, **options):
    made = longbench_v2.Options(source=str(path), prompts={"longbench_v2": "{context}"}, **options)
    return list(longbench_v2.prepare(V2, "full", made, longbench_v2.sources(V2, "full", made, "R")))


@pytest.mark.parametrize("form", ["folder", "list", "indented", "jsonl"])
def test_each_form_of_longbench_v2_gives_the_same_records(tmp_path, form):
    path = tmp_path / ("mine.jsonl" if form == "jsonl" else "data.json")
    rows = questions(503)
    if form == "jsonl":
        path.write_text("".join(map(dump_line, rows)))
    else:
        path.write_text(json.dumps(rows, indent=2 if form == "indented" else None))
    records = v2(tmp_path if form == "folder" else path)
    assert len(records) == 503
    assert records[7].id == records[7].question_id == f"{7:024x}"
    assert records[7].fields == question(7, question="what 7?", choice_A="a", context="the {document} 7")


def test_longbench_v2_s_downloads():
    found = longbench_v2.sources(V2, "full", longbench_v2.Options(), "R")
    names = ["0shot", "0shot_cot", "0shot_cot_ans", "0shot_rag", "0shot_no_context"]
    assert found == [
        "R/downloads/longbench_v2/2b48e494f2c7a2f0af81aae178e05c7e1dde0fe9/data.json",
        *(f"R/downloads/longbench_v2/{COMMIT}/{name}.txt" for name in names),
    ]
    assert longbench_v2.download("data.json", "x")["hub"] == "THUDM/LongBench-v2"
    assert longbench_v2.download("0shot_rag.txt", COMMIT)["file"] == "prompts/0shot_rag.txt"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (questions(502), "502 records, but LongBench v2 has 503; the file is not whole"),
        (questions(3, {"answer": "E"}), "record 3: 'answer' should be one of A, B, C, D, found 'E'"),
        (questions(3, {"length": "huge"}), "record 3: 'length' should be one of short, medium, long, found 'huge'"),
        (questions(3, {"difficulty": None}), "record 3: 'difficulty' should be a str, found NoneType"),
        (questions(3, {"context": 1}), "record 3: 'context' should be a str, found int"),
        (questions(3, {"_id": f"{0:024x}"}), "record 3: the question '000000000000000000000000' stands there twice"),
        ([*questions(2), 5], "record 3 should be a JSON object, found int"),
        ({"a": 1}, "a JSON list of records was expected"),
        ([{"a": float("nan")}], "NaN in record 1 is not JSON"),
    ],
)
def test_bad_questions_are_refused_with_file_and_record(tmp_path, rows, words):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(rows))
    with pytest.raises(UserError) as caught:
        v2(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def chain(template, fields):
    """The reference's way of filling a prompt in."""
    for placeholder, name in longbench_v2.PLACEHOLDERS.items():
        template = template.replace(placeholder, fields[name].strip())
    return template


@pytest.mark.parametrize("name", ["0shot", "0shot_cot", "0shot_cot_ans", "0shot_rag", "0shot_no_context"])
def test_each_prompt_of_longbench_v2_renders_as_the_reference_s(tmp_path, shared, clone, name):
    path = tmp_path / "data.json"
    path.write_text(json.dumps(questions(503)))
    options = longbench_v2.Options(source=str(path), prompts_from=str(clone))
    record = next(iter(longbench_v2.prepare(V2, "full", options, longbench_v2.sources(V2, "full", options, "R"))))
    given = reference(shared, "longbench_v2_tasks.json")["tasks"][name]["prompt"]
    ours, _ = render(record.fields["templates"][name], {**record.fields, "response_cot": "so {it} is"})
    assert sha256(ours) == sha256(chain(given, {**question(0), "response_cot": " so {it} is\n"}))
    assert record.fields["template"] == record.fields["templates"]["0shot"]


def test_a_document_that_holds_placeholders_is_left_alone_unless_the_reference_s_way_is_chosen(tmp_path):
    template = "<$DOC$> {x} $Q$ (A) $C_A$ $C_B$ $C_C$ $C_D$"
    tricky = {"context": "see $Q$, $C_B$ and $DOC$", "question": "is $C_A$ or $DOC$?", "choice_A": "$C_D$ {y}"}
    path = tmp_path / "data.json"
    path.write_text(json.dumps([question(0, **tricky), *questions(503)[1:]]))
    form = longbench_v2.as_format(template)
    safe, same = (v2(path, substitution=way)[0].fields for way in ("safe", "reference"))
    assert render(form, safe)[0] == "<see $Q$, $C_B$ and $DOC$> {x} is $C_A$ or $DOC$? (A) $C_D$ {y} b c d"
    assert render(form, same)[0] == chain(template, {**question(0, **tricky), "response_cot": ""})
    assert render(form, same)[0] != render(form, safe)[0]


def test_real_questions_pass_the_checks_and_render(shared, clone):
    source = shared / "cases/records/longbench_v2_19.json"
    options = longbench_v2.Options(source=str(source), prompts_from=str(clone))
    records = []
    with pytest.raises(UserError, match="19 records, but LongBench v2 has 503"):
        collect(longbench_v2.prepare(V2, "full", options, longbench_v2.sources(V2, "full", options, "R")), records)
    rows = read_json(source)
    template = reference(shared, "longbench_v2_tasks.json")["tasks"]["0shot"]["prompt"]
    assert [record.id for record in records] == [real["_id"] for real in rows]
    for record, real in zip(records, rows, strict=True):
        assert render(record.fields["template"], record.fields)[0] == chain(template, {**real, "response_cot": ""})


# A JSON list, streamed.

items = st.dictionaries(st.text(max_size=8), st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text())))


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(items, max_size=6),
    indent=st.sampled_from([None, 0, 2]),
    ascii=st.booleans(),
    chunk=st.integers(1, 40),
)
def test_a_list_is_read_as_json_reads_it_whatever_the_chunks(tmp_path_factory, rows, indent, ascii, chunk):
    path = tmp_path_factory.mktemp("list") / "data.json"
    try:
        path.write_text(json.dumps(rows, indent=indent, ensure_ascii=ascii), encoding="utf-8")
    except UnicodeEncodeError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK", chunk)
        assert list(files.read_json_list(path)) == rows


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_a_list_that_ends_early_is_an_error_wherever_it_ends(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(files, "CHUNK", chunk)
    text = json.dumps([{"a": "one\ttwo é", "b": [1, None, True]}, {"c": -1.5e3}], indent=1)
    path = tmp_path / "data.json"
    for end in range(len(text)):
        path.write_text(text[:end])
        with pytest.raises(UserError, match=str(path)):
            list(files.read_json_list(path))
    for wrong in (text + "x", text.replace("},", "} "), text.replace("},", "},,"), text[:-1] + ",]", "[,{}]", "[{}{}]"):
        path.write_text(wrong)
        with pytest.raises(UserError, match=str(path)):
            list(files.read_json_list(path))


# Prompt files from GitHub.


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A mirror of GitHub's files on loopback: a folder, served."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("LONGFLOW_GITHUB", f"http://127.0.0.1:{server.server_address[1]}/")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield folder
    server.shutdown()
    server.server_close()


def test_a_prompt_file_is_fetched_at_its_commit_and_checked(tmp_path, mirror):
    place = mirror / "THUDM/LongBench" / COMMIT / "prompts"
    place.mkdir(parents=True)
    (place / "0shot.txt").write_bytes("Let’s\n".encode())
    output = tmp_path / "downloads" / "0shot.txt"
    arguments = ("THUDM/LongBench", COMMIT, "prompts/0shot.txt")
    github.fetch(*arguments, sha256("Let’s\n"), output)
    assert output.read_bytes() == "Let’s\n".encode()
    output.unlink()
    with pytest.raises(UserError, match=r"SHA-256 is .* that is another file"):
        github.fetch(*arguments, sha256("another"), output)
    with pytest.raises(UserError, match=r"prompts/none\.txt of THUDM/LongBench could not be fetched from .*404"):
        github.fetch("THUDM/LongBench", COMMIT, "prompts/none.txt", sha256(""), output)
    assert list(output.parent.iterdir()) == []


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "nonsense"])
def test_what_cannot_be_reached_is_one_line_that_names_the_way_round(tmp_path, monkeypatch, address):
    monkeypatch.setenv("LONGFLOW_GITHUB", address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(UserError) as caught:
        github.fetch("THUDM/LongBench", COMMIT, "prompts/0shot.txt", sha256(""), tmp_path / "x")
    assert f"{address}/THUDM/LongBench/{COMMIT}/prompts/0shot.txt" in str(caught.value)
    assert "prompts_from:" in str(caught.value)
    assert "\n" not in str(caught.value)


# The workflow.


def made_up(task, index):
    """A record as LongBench's own files have it."""
    return {
        "input": f"question {index}", "context": f"text {index} " * 30, "answers": [f"answer {index}", "other"],
        "length": 3000 + 3000 * (index % 3), "dataset": task.dataset, "language": task.language,
        "all_classes": ["City", "Country"], "_id": f"{task.dataset}-{index}",
    }  # fmt: skip


@pytest.mark.slow
def test_longbench_through_the_workflow_from_local_files(workflow, clone, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name in ("longbench", "longbench_e"):
        for dataset in ("samsum", "qasper"):
            task = benchmarks.load(name).task(dataset)
            file = folder / (f"{dataset}_e.jsonl" if name == "longbench_e" else f"{dataset}.jsonl")
            file.write_text("".join(dump_line(made_up(task, i)) for i in range(task.n)), encoding="utf-8")
    options = {"source": str(folder), "prompts_from": str(clone), "datasets": ["samsum", "qasper"]}
    workflow.config["run"]["benchmarks"] = ["longbench", "longbench_e"]
    workflow.config["benchmarks"] = {"longbench": options, "longbench_e": options}
    jobs = workflow.run().jobs
    assert jobs == {
        "prepare": 4, "model": 1, "predict": 4, "score": 4, "table": 2, "leaderboard": 1,
        "plot_longbench": 1, "plot_longbench_e": 1, "plot_records_longbench": 1, "plot_records_longbench_e": 1,
        "anatomy": 2, "analysis": 2,
    }  # fmt: skip
    tables = workflow.folder / "results/tables"
    assert list(json.loads((tables / "longbench/standin/full/result.json").read_text())) == ["qasper", "samsum"]
    buckets = json.loads((tables / "longbench_e/standin/full/result.json").read_text())
    assert list(buckets["qasper"]) == ["0-4k", "4-8k", "8k+"]
    protocol = json.loads((tables / "longbench/standin/full/protocol.json").read_text())
    assert protocol["not_wrapped"] == ["samsum"]
    assert protocol["generation"]["samsum"]["stop_newline"] is True
    assert protocol["prompt_files_sha256"] == benchmarks.table("longbench")["prompt_files"]
    row = json.loads(
        (workflow.folder / "results/predictions/longbench/standin/full/qasper/full.jsonl").open().readline()
    )
    assert list(row)[:6] == ["pred", "answers", "gold_ans", "input", "all_classes", "length"]
    assert workflow.run().jobs == {}
    assert workflow.counted()["requests"] == 200 + 200 + 300 + 224


@pytest.mark.slow
def test_longbench_v2_through_the_workflow_from_a_local_file(workflow, clone, tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "data.json"
    rows = [
        {
            "_id": f"q{i}", "domain": "Code Repository Understanding", "sub_domain": "x",
            "difficulty": "easy" if i % 2 else "hard", "length": ("short", "medium", "long")[i % 3],
            "question": f"Which {i}?", "choice_A": "a", "choice_B": "b", "choice_C": "c", "choice_D": "d",
            "answer": "ABCD"[i % 4], "context": f"text {i} $Q$ " * 20,
        }
        for i in range(503)
    ]  # fmt: skip
    file.write_text(json.dumps(rows), encoding="utf-8")
    workflow.config["run"]["benchmarks"] = ["longbench_v2"]
    workflow.config["benchmarks"] = {"longbench_v2": {"source": str(file), "prompts_from": str(clone)}}
    workflow.config["models"]["standin"]["options"] = {"say": "The correct answer is (B)."}
    workflow.run()
    tables = workflow.folder / "results/tables/longbench_v2/standin/full"
    result = json.loads((tables / "result.json").read_text())
    right = [i for i in range(503) if i % 4 == 1]
    assert result["Overall"] == round(100 * len(right) / 503, 1)
    assert result["Easy"] == round(100 * len(right) / 251, 1)  # every B is asked at an odd number, and those are easy
    assert result["Hard"] == 0.0
    protocol = json.loads((tables / "protocol.json").read_text())
    assert protocol["generation"]["longbench_v2"]["temperature"] == 0.1
    assert protocol["truncation"]["rule"].startswith("middle_joined")
    assert protocol["records"]["unparsed"] == 0
