"""Settings: the same questions with another context."""

import json

import pytest
from conftest import small_run

from longflow import benchmarks, config, settings
from longflow.cells import Files, cells
from longflow.errors import UserError
from longflow.jsonio import read_jsonl
from longflow.records import Record

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
    fitting = {name for name, task in benchmarks.load("longbench").tasks.items() if settings.fits(task)}
    assert fitting == {
        "narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa", "musique", "dureader",
    }  # fmt: skip
    assert all(
        settings.fits(task)
        for name in ("lveval", "demo", "longbench_v2")
        for task in benchmarks.load(name).tasks.values()
    )


def test_without_context_nothing_is_left_to_read():
    fields = {"context": "long text", "input": "Who?", "answers": ["x"], "length": 2}
    (made,) = settings.apply([Record("r", "q", fields, ((0, 4),), ((5, 9),))], BLIND)
    assert made.fields == {**fields, "context": ""}
    assert (made.id, made.question_id, made.evidence, made.confusing) == ("r", "q", (), ())


def test_longbench_v2_has_a_prompt_of_its_own_for_it():
    templates = {"0shot": "{context} {question}", "0shot_no_context": "{question}"}
    fields = {"context": "t", "question": "Which?", "template": templates["0shot"], "templates": templates}
    (made,) = settings.apply([Record("r", "q", fields)], BLIND)
    assert made.fields["template"] == "{question}"


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
    assert jobs == {"retrieve": 4, "predict": 4, "score": 4, "table": 1, "leaderboard": 1, "plot_demo": 1}
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
    assert jobs == {"retrieve": 4, "predict": 4, "score": 4, "table": 1, "leaderboard": 1, "plot_demo": 1}
    # The needle's question is the same everywhere, and without a context so is the whole prompt.
    assert finished.counted() == {"loads": 4, "requests": 3 + 3 + 1 + 1}
    rows = list(read_jsonl(finished.folder / "resources/retrieved/demo/blind/singlehop_en/250.jsonl"))
    assert [row["context"] for row in rows] == [""] * 3
    protocol = json.loads((finished.folder / "results/tables/demo/standin/blind/protocol.json").read_text())
    assert protocol["setting_options"] == {"kind": "no_context"}
    board = (finished.folder / "results/leaderboard/demo.csv").read_text().splitlines()
    columns = board[0].split(",")
    found = {
        (row["setting"], row["rank"])
        for row in (dict(zip(columns, line.split(","), strict=True)) for line in board[1:])
    }
    assert {setting for setting, _ in found} == {"full", "blind"}
    assert all(rank for _, rank in found)
    assert finished.run().jobs == {}
