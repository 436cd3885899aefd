"""Settings: the same questions with another context."""

import json

import pytest
from conftest import AFTER_SCORES, small_run

from longflow import benchmarks, config, settings
from longflow.cells import Files, cells, score_spec
from longflow.errors import UserError
from longflow.jsonio import read_jsonl
from longflow.records import Record, document_id

BLIND = settings.NoContext(kind="no_context")


def build(**changes):
    made = small_run()
    made["run"]["settings"] = ["full", "blind"]
    made["settings"] = {"blind": {"kind": "no_context"}}
    return {**made, **changes}


@pytest.mark.parametrize(
    ("merged", "words"),
    [
        (build(settings={}), "run.settings: 'blind' is not full or an entry under settings:"),
        (build(settings={"blind": {}}), "settings.blind.kind: missing; choose"),
        (build(settings={"blind": {"kind": "nocontext"}}), "'nocontext' is not known; did you mean 'no_context'?"),
        (build(settings={"blind": {"kind": "no_context", "top": 3}}), "settings.blind: unknown key 'top'"),
        (build(settings={"full": {"kind": "no_context"}}), "'full' is no name for a setting"),
        (build(settings={"a/b": {"kind": "no_context"}}), "'a/b' is no name for a setting"),
    ],
)
def test_a_wrong_setting_is_one_line(merged, words):
    with pytest.raises(UserError) as caught:
        config.parse(merged)
    assert words in str(caught.value)


def test_cells_and_their_records():
    parsed = config.parse(build())
    made = list(cells(parsed))
    assert len(made) == 8
    by_setting = {cell.setting: Files(parsed).records_of(cell) for cell in made if cell.dataset == "needle_en"}
    assert by_setting == {
        "full": "resources/records/demo/needle_en/500.jsonl",
        "blind": "resources/retrieved/demo/blind/needle_en/500.jsonl",
    }


def test_a_setting_has_only_data_sets_that_it_makes_sense_for():
    fitting = {name for name, task in benchmarks.load("longbench").tasks.items() if settings.fits(BLIND, task)}
    assert fitting == {
        "narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa", "musique", "dureader",
    }  # fmt: skip
    assert all(
        settings.fits(BLIND, task)
        for name in ("lveval", "demo", "longbench_v2")
        for task in benchmarks.load(name).tasks.values()
    )


def test_without_context_nothing_is_left_to_read():
    fields = {"context": "long text", "input": "Who?", "answers": ["x"], "length": 2}
    (made,) = settings.apply([Record("r", "q", fields, ((0, 4),), ((5, 9),))], BLIND)
    assert made.fields == {**fields, "context": "", "_document": document_id("long text")}
    assert (made.id, made.question_id, made.evidence, made.confusing) == ("r", "q", (), ())


def test_longbench_v2_has_a_prompt_of_its_own_for_it():
    templates = {"0shot": "{context} {question}", "0shot_no_context": "{question}"}
    fields = {"context": "t", "question": "Which?", "template": templates["0shot"], "templates": templates}
    (made,) = settings.apply([Record("r", "q", fields)], BLIND)
    assert made.fields["template"] == "{question}"


def test_choices_are_asked_in_every_rotation_with_the_right_letter():
    choices = dict(zip(("choice_A", "choice_B", "choice_C", "choice_D"), ("one", "two", "three", "four"), strict=True))
    record = Record("r", "q", {"context": "t", "question": "Which?", "template": "", "answer": "C", **choices})
    made = list(settings.apply([record], settings.NoContext(kind="no_context", rotations=True)))
    assert [(each.id, each.fields["_rotation"], each.fields["answer"]) for each in made] == [
        ("r-0", 0, "C"), ("r-1", 1, "B"), ("r-2", 2, "A"), ("r-3", 3, "D"),
    ]  # fmt: skip
    assert [each.fields["choice_A"] for each in made] == ["one", "two", "three", "four"]
    assert {each.fields[f"choice_{each.fields['answer']}"] for each in made} == {"three"}
    assert {each.question_id for each in made} == {"q"}
    merged = build(settings={"blind": {"kind": "no_context", "rotations": True}})
    merged["run"] |= {"benchmarks": ["longbench_v2"]}
    parsed = config.parse(merged)
    expected = {cell.setting: json.loads(score_spec(parsed, cell))["n_expected"] for cell in cells(parsed)}
    assert expected == {"full": 503, "blind": 4 * 503}


def test_retrieval_makes_a_context_of_what_it_finds_and_places_the_evidence():
    demo = benchmarks.load("demo")
    task = demo.task("singlehop_en")
    options = demo.module.Options(records=3)
    rag = settings.RagOptions(kind="rag", retriever="bm25_words", chunk_size=60, top_n=3)
    whole = list(demo.module.prepare(task, "1000", options, demo.module.sources(task, "1000", options, "resources")))
    made = list(settings.apply(whole, rag))
    assert [record.id for record in made] == [record.id for record in whole]
    for before, after in zip(whole, made, strict=True):
        assert 0 < len(after.fields["context"].split()) <= 3 * 70 < len(before.fields["context"].split())
        for start, end in after.evidence:
            assert after.fields["context"][start:end] in {before.fields["context"][a:b] for a, b in before.evidence}
    # What the question asks for is what is found: the answer stands in most of what is left.
    kept = sum(record.fields["answers"][0] in record.fields["context"] for record in made)
    assert kept >= 2


@pytest.mark.slow
def test_retrieval_through_the_workflow(finished):
    finished.config = build(settings={"rag2": {"kind": "rag", "retriever": "bm25_chars", "top_n": 2, "chunk_size": 50}})
    finished.config["run"]["settings"] = ["full", "rag2"]
    jobs = finished.run().jobs
    assert jobs == {"retrieve": 4, "predict": 4, "score": 4, **AFTER_SCORES}
    protocol = json.loads((finished.folder / "results/tables/demo/standin/rag2/protocol.json").read_text())
    assert protocol["setting_options"]["retriever"] == "bm25_chars"
    assert finished.run().jobs == {}
    finished.counted()
    finished.config["settings"]["rag2"]["top_n"] = 3
    assert finished.run().jobs["retrieve"] == 4
    assert 0 < finished.counted()["requests"] <= 12


@pytest.mark.slow
def test_a_run_in_which_no_cell_is_left_is_refused(workflow, tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "needle_en_250.jsonl").write_text("")
    workflow.config = build(models={"standin": {"engine": "imported", "path": str(tmp_path / "theirs")}})
    workflow.config["run"]["settings"] = ["blind"]
    run = workflow.run(check=False)
    assert run.status == 1
    assert "run: nothing is left to do: the settings blind make no sense" in run.text
    assert "Traceback" not in run.text


@pytest.mark.slow
def test_an_added_setting_runs_only_its_cells_and_has_tables_of_its_own(finished):
    finished.config = build()
    jobs = finished.run().jobs
    # What was known without reading is told of the records of the full setting too.
    assert jobs == {"retrieve": 4, "predict": 4, "score": 4, **AFTER_SCORES, "anatomy": 2}
    # The needle's question is the same everywhere, and without a context so is the whole prompt.
    assert finished.counted() == {"loads": 4, "requests": 3 + 3 + 1 + 1}
    rows = list(read_jsonl(finished.folder / "resources/retrieved/demo/blind/singlehop_en/250.jsonl"))
    assert [row["context"] for row in rows] == [""] * 3
    protocol = json.loads((finished.folder / "results/tables/demo/standin/blind/protocol.json").read_text())
    assert protocol["setting_options"] == {"kind": "no_context", "rotations": False}
    board = (finished.folder / "results/leaderboard/demo.csv").read_text().splitlines()
    columns = board[0].split(",")
    found = {
        (row["setting"], row["rank"])
        for row in (dict(zip(columns, line.split(","), strict=True)) for line in board[1:])
    }
    assert {setting for setting, _ in found} == {"full", "blind"}
    assert all(rank for _, rank in found)
    assert finished.run().jobs == {}


def test_a_chain_of_thought_is_of_longbench_v2_and_leaves_room_for_the_thoughts():
    merged = build(settings={"blind": {"kind": "cot"}})
    parsed = config.parse(merged)
    assert {cell.setting for cell in cells(parsed)} == {"full"}
    merged["run"]["benchmarks"] = ["longbench_v2"]
    merged["models"]["standin"]["window"] = 32768
    parsed = config.parse(merged)
    assert [cell.setting for cell in cells(parsed)] == ["full", "blind"]
    assert parsed.prompt_limit("standin", "longbench_v2", "full")[0] == 32768 - 128 - 128
    assert parsed.prompt_limit("standin", "longbench_v2", "blind")[0] == 32768 - 1024 - 128
    merged["models"]["standin"]["window"] = 131072
    assert config.parse(merged).prompt_limit("standin", "longbench_v2", "blind")[0] == 120_000


def test_settings_that_ask_in_turns_use_the_records_of_the_data_set():
    parsed = config.parse(build(settings={"blind": {"kind": "summary", "piece_words": 100}}))
    made = [cell for cell in cells(parsed) if cell.setting == "blind" and cell.dataset == "needle_en"]
    assert [Files(parsed).records_of(cell) for cell in made] == [
        "resources/records/demo/needle_en/250.jsonl",
        "resources/records/demo/needle_en/500.jsonl",
    ]
    fitting = {
        name
        for name, task in benchmarks.load("longbench").tasks.items()
        if settings.fits(settings.Summary(kind="summary"), task)
    }
    assert {"qmsum", "gov_report", "vcsum", "multi_news", "narrativeqa"} <= fitting
    assert not {"lcc", "trec", "passage_count"} & fitting


def test_equal_answers_are_not_asked_for_several_times():
    merged = build(settings={}, models={"m": {"engine": "transformers", "path": "a/b", "chat": "none", "window": 4096}})
    merged["run"] |= {"models": ["m"], "settings": ["full"]}
    merged["benchmarks"]["demo"]["repeats"] = 3
    with pytest.raises(UserError, match=r"benchmarks\.demo\.repeats: 3 answers of models\.m would be equal"):
        config.parse(merged)
    merged["models"]["m"]["temperature"] = 0.7
    assert config.parse(merged).options["demo"].repeats == 3
