"""Answers that take several calls, several answers to a record, and cells dealt over jobs."""

import json
import re
from typing import ClassVar

import pytest
import standin
from helpers_spec import SPEC
from hypothesis import given
from hypothesis import strategies as st

from longflow import batch_files, predict, specs
from longflow.cell_run import CellRun, Job
from longflow.engines import Completion, Request
from longflow.errors import UserError
from longflow.journal import Journal
from longflow.jsonio import read_jsonl, write_jsonl
from longflow.records import Record
from longflow.retrieval.chunks import words
from longflow.shards import deal
from longflow.turns import pieces

COT = {"kind": "cot", "max_new_tokens": 32}
SUMMARY = {"kind": "summary", "piece_words": 10, "max_new_tokens": 7, "prompt": None}
TEMPLATES = {"0shot_cot": "Think of {context}. {question}", "0shot_cot_ans": "You thought: {response_cot}! {question}"}


def question(index, context=None, **more):
    fields = {"input": "Where?", "question": "Where?", "context": context or f"text {index} " * 30, "answers": ["x"]}
    return Record(f"r{index}", f"q{index}", {**fields, "length": 60, **more})


class Echo:
    """An engine that says what it was asked, in words it chooses; keeps what it was asked."""

    asked: ClassVar[list[Request]] = []

    def __init__(self, entry, location):
        self.entry = entry

    def tokenizer(self):
        return standin.Words()

    def generate(self, requests):
        for request in requests:
            Echo.asked.append(request)
            if request.name in self.entry["options"].get("fail", []):
                yield Completion(request.key, "", "error", error="told to fail")
                continue
            yield Completion(request.key, f"({len(Echo.asked)}) {request.prompt[:30]} ", "stop", 5, 2, 0.5)

    def close(self):
        pass


@pytest.fixture
def ask(tmp_path):
    """Run a cell of these records: its rows, and the requests that were generated."""

    def run(records, options=None, **spec):
        write_jsonl(tmp_path / "records.jsonl", (record.to_row() for record in records))
        Echo.asked = []
        predict.run(job(tmp_path, options, **spec), tmp_path / "out.jsonl", tmp_path / "usage.json")
        return list(read_jsonl(tmp_path / "out.jsonl")), Echo.asked

    return run


def job(folder, options=None, name="cell", **spec):
    return Job(
        name=name,
        records=str(folder / "records.jsonl"),
        model={"identity": {"name": "echo"}, "location": None, "window": None},
        entry={"engine": "test_turns:Echo", "options": options or {}, "window": 4096, "chat": "none"},
        spec={**SPEC, **spec},
        journal=str(folder / "journal" / name),
    )


def test_a_chain_of_thought_answers_from_its_thoughts_alone(ask):
    records = [question(0, templates=TEMPLATES), question(1, templates=TEMPLATES)]
    rows, asked = ask(records, setting=COT, prompt=None)
    assert [request.name for request in asked] == ["r0", "r1", "r0", "r1"]
    assert [request.generation.max_new_tokens for request in asked] == [32, 32, 8, 8]
    assert asked[0].prompt.startswith("Think of text 0")
    for row, second in zip(rows, asked[2:], strict=True):
        assert second.prompt == f"You thought: {row['response_cot'].strip()}! Where?"
        assert row["response_cot"].startswith("(")
        assert row["response_cot"].endswith(" ")
    assert [row["pred"].split()[0] for row in rows] == ["(3)", "(4)"]
    again, asked = ask(records, setting=COT, prompt=None)
    assert (again, asked) == (rows, [])


def test_a_failed_thought_fails_its_record_alone_and_is_tried_again(ask):
    records = [question(0, templates=TEMPLATES), question(1, templates=TEMPLATES)]
    rows, asked = ask(records, options={"fail": ["r0"]}, setting=COT, prompt=None)
    assert [row["error"] for row in rows] == ["told to fail", None]
    assert [request.name for request in asked] == ["r0", "r1", "r1"]
    assert rows[0]["pred"] == ""
    rows, asked = ask(records, setting=COT, prompt=None, options={"fail": []})
    assert [request.name for request in asked] == ["r0", "r0"]
    assert [row["error"] for row in rows] == [None, None]


def test_a_record_without_the_prompts_of_a_chain_of_thought_is_named(ask):
    with pytest.raises(UserError, match="record r0: brings no prompt 0shot_cot"):
        ask([question(0)], setting=COT)


def test_a_context_is_summarised_piece_by_piece(ask):
    context = "".join(f"One two three four five {i}. " for i in range(7))
    rows, asked = ask([question(0, context, language="en")], setting=SUMMARY)
    pieces_asked, final = asked[:-1], asked[-1]
    assert "".join(request.prompt.partition("\nSummerize")[0] for request in pieces_asked) == context
    assert {request.generation.max_new_tokens for request in pieces_asked} == {7}
    assert final.generation.max_new_tokens == 8
    assert re.findall(r"^Paragraph Summary(\d+) : \(\d", rows[0]["context_summary"], re.MULTILINE) == list("1234")
    assert final.prompt == rows[0]["context_summary"] + "\nWhere?"


def test_a_short_context_stays_and_chinese_is_asked_in_chinese(ask):
    rows, asked = ask([question(0, "short text"), question(1, "北京是首都。" * 5, language="zh")], setting=SUMMARY)
    assert rows[0]["context_summary"] is None
    assert [request.prompt for request in asked if request.name == "r0"] == ["short text\nWhere?"]
    assert "请对上面的文本进行总结" in next(r.prompt for r in asked if r.name == "r1")
    assert rows[1]["context_summary"].startswith("段落摘要1 : ")


@given(st.text(alphabet="ab .\n。字", max_size=400), st.integers(1, 20))
def test_pieces_joined_are_the_context(context, size):
    found = pieces(context, size)
    assert "".join(found) == (context if found else "")
    assert bool(found) == (len(words(context)) // size >= 2)
    assert all(found)


def test_repeats_are_answers_of_their_own_and_more_of_them_keep_the_first(ask):
    sampled = {**SPEC["generation"], "temperature": 0.7, "seed": 1}
    records = [question(0), question(1)]
    once, _ = ask(records, generation=sampled)
    rows, asked = ask(records, generation=sampled, repeats=3)
    assert [(row["id"], row["repeat"]) for row in rows] == [(f"r{i}", r) for i in (0, 1) for r in (0, 1, 2)]
    assert len(asked) == 4
    assert len({request.generation.seed for request in asked}) == 4
    assert [row["pred"] for row in rows if row["repeat"] == 0] == [row["pred"] for row in once]
    assert "repeat" not in once[0]


def test_too_many_failures_end_a_cell_and_keep_what_was_answered(tmp_path):
    write_jsonl(tmp_path / "records.jsonl", (question(i).to_row() for i in range(10)))

    def run(limit, fail):
        Echo.asked = []
        made = job(tmp_path, {"fail": fail})
        made = Job(**{**made.__dict__, "max_failures": limit})
        return predict.run(made, tmp_path / "out.jsonl", tmp_path / "usage.json")

    fail = ["r2", "r4", "r5"]
    with pytest.raises(UserError, match=r"cell: 2 records failed, more than run.max_failures: 1; .* told to fail"):
        run(1, fail)
    assert not (tmp_path / "out.jsonl").exists()
    assert len(Echo.asked) <= 6
    assert run(0.3, fail)["failed"] == 3
    assert [request.name for request in Echo.asked][:3] == ["r2", "r4", "r5"]  # what was answered is not asked again
    with pytest.raises(UserError, match=r"3 records failed, more than run\.max_failures: 0\.2"):
        run(0.2, fail)


def test_a_batch_asks_the_same_question_once(tmp_path):
    write_jsonl(tmp_path / "records.jsonl", (question(i, "same").to_row() for i in range(3)))
    Echo.asked = []
    jobs = [job(tmp_path, name=name) for name in ("a", "b")]
    places = [predict.Place(f"{tmp_path}/{name}.jsonl", f"{tmp_path}/{name}.json") for name in ("a", "b")]
    faults = predict.run_batch(jobs, places)
    assert len(Echo.asked) == 1
    assert faults == {}
    assert len(list(read_jsonl(tmp_path / "a.jsonl"))) == 3
    assert list(read_jsonl(tmp_path / "a.jsonl")) == list(read_jsonl(tmp_path / "b.jsonl"))
    Echo.asked = []
    predict.run_batch(jobs, places)  # each has a journal of its own that knows everything
    assert Echo.asked == []


@pytest.mark.parametrize("setting", [None, COT])
def test_shards_give_the_same_bytes_and_no_record_is_asked_twice(tmp_path, setting):
    more = {"setting": setting, **({"prompt": None} if setting else {})}
    records = [question(i, f"document {i // 3} " * (10 + i), templates=TEMPLATES) for i in range(11)]
    write_jsonl(tmp_path / "records.jsonl", (record.to_row() for record in records))
    whole = job(tmp_path, {"fail": ["r7"]}, name="whole", **more)
    Echo.asked = []
    predict.run(whole, tmp_path / "whole.jsonl", tmp_path / "usage.json")
    asked = len(Echo.asked)
    sharded = job(tmp_path, {"fail": ["r7"]}, name="whole", **more)
    sharded = Job(**{**sharded.__dict__, "journal": str(tmp_path / "journal" / "sharded")})
    Echo.asked = []
    paths = [tmp_path / f"{shard}.json" for shard in range(3)]
    for shard, path in enumerate(paths):
        predict.run_shard(sharded, shard, 3, path)
    assert len(Echo.asked) == asked
    place = predict.Place(str(tmp_path / "sharded.jsonl"), str(tmp_path / "usage2.json"))
    predict.assemble(sharded, paths, place)
    assert len(Echo.asked) == asked
    ids = [[row["id"], row["error"]] for row in read_jsonl(tmp_path / "sharded.jsonl")]
    assert ids == [[row["id"], row["error"]] for row in read_jsonl(tmp_path / "whole.jsonl")]
    with pytest.raises(UserError, match="no shard has answered it"):
        predict.assemble(Job(**{**sharded.__dict__, "journal": str(tmp_path / "none")}), paths, place)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 500)), max_size=40), st.integers(1, 9))
def test_each_record_is_in_one_shard_and_shards_are_about_equal(tmp_path_factory, texts, shards):
    folder = tmp_path_factory.mktemp("deal")
    rows = [question(i, f"{start}" * size).to_row() for i, (start, size) in enumerate(texts)]
    write_jsonl(folder / "records.jsonl", rows)
    parts = deal(str(folder / "records.jsonl"), {**SPEC, "max_prompt_tokens": 10_000}, shards)
    assert sorted(index for part in parts for index in part) == list(range(len(texts)))
    assert len(parts) == shards
    weights = [sum(1 + texts[index][1] for index in part) for part in parts]
    longest = max((size for _, size in texts), default=0) + 1
    assert max(weights) - sum(weights) / shards <= longest


class Thinks(Echo):
    """A thinking model whose first calls bring 20 words after its thoughts; with `open` they never end."""

    def generate(self, requests):
        for request in requests:
            Echo.asked.append(request)
            open_ended = self.entry["options"].get("open") and "Summerize" in request.prompt
            text = "<think>hm" if open_ended else "<think>hm</think>" + " ".join(f"w{i}" for i in range(20))
            yield Completion(request.key, text, "length" if open_ended else "stop", 5, 21, 0.1)


@pytest.mark.parametrize("open_ended", [False, True])
def test_thoughts_and_summaries_have_a_length_of_their_own(tmp_path, open_ended):
    context = "".join(f"One two three four five {i}. " for i in range(7))
    write_jsonl(tmp_path / "records.jsonl", [question(0, context, language="en").to_row()])
    model = {**SPEC["model"], "reasoning": {"start": "<think>", "end": "</think>", "max_tokens": 50}}
    made = job(tmp_path, {"open": open_ended}, setting={**SUMMARY, "max_new_tokens": 15}, model=model)
    made = Job(**{**made.__dict__, "entry": {**made.entry, "engine": "test_turns:Thinks"}})
    predict.run(made, tmp_path / "out.jsonl", tmp_path / "usage.json")
    (row,) = read_jsonl(tmp_path / "out.jsonl")
    words = [len(line.split(" : ")[1].split()) for line in row["context_summary"].splitlines()]
    assert words == ([0] * 4 if open_ended else [15] * 4)  # not the 8 of an answer
    assert row["pred"].split() == [f"w{i}" for i in range(8)]
    assert row["reasoning_closed"] is not open_ended
    assert row["reasoning_before"] == [["hm"] * 4]


def test_a_data_set_s_language_decides_where_its_records_are_silent(ask):
    _, asked = ask([question(0, "北京是首都。" * 5)], setting=SUMMARY, language="zh")
    assert "请对上面的文本进行总结" in asked[0].prompt


def test_too_many_failures_end_a_cell_in_shards_as_well(tmp_path):
    write_jsonl(tmp_path / "records.jsonl", (question(i).to_row() for i in range(10)))
    made = job(tmp_path, {"fail": ["r2", "r7"]})
    made = Job(**{**made.__dict__, "max_failures": 1})
    paths = [tmp_path / f"{shard}.json" for shard in range(2)]
    for shard, path in enumerate(paths):
        predict.run_shard(made, shard, 2, path)
    place = predict.Place(str(tmp_path / "out.jsonl"), str(tmp_path / "usage.json"))
    with pytest.raises(UserError, match=r"2 records failed, more than run\.max_failures: 1"):
        predict.assemble(made, paths, place)
    assert all(specs.is_stale(path, json.dumps(made.spec)) for path in paths)  # the next run tries them again


def limited(made, limit):
    return Job(**{**made.__dict__, "max_failures": limit})


def test_a_cell_that_stops_in_its_first_turn_says_so(tmp_path):
    write_jsonl(tmp_path / "records.jsonl", (question(i, templates=TEMPLATES).to_row() for i in range(3)))
    jobs = [limited(job(tmp_path, {"fail": ["r0", "r1"]}, name=name, setting=COT, prompt=None), 0) for name in "ab"]
    with pytest.raises(UserError, match=r"a: [12] records failed, more than run\.max_failures: 0"):
        predict.run(jobs[0], tmp_path / "out.jsonl", tmp_path / "usage.json")
    places = [predict.Place(f"{tmp_path}/{each.name}.jsonl", f"{tmp_path}/{each.name}.json") for each in jobs]
    assert list(predict.run_batch(jobs, places)) == ["a", "b"]


class FailsLater(Echo):
    """Fails the first call of records 0 and 1, and the second call of record 2."""

    def generate(self, requests):
        for request in requests:
            second = request.prompt.startswith("You thought")
            if request.name in ("r2",) if second else request.name in ("r0", "r1"):
                yield Completion(request.key, "", "error", error="told to fail")
            else:
                yield Completion(request.key, f"thought of {request.name}", "stop", 5, 2, 0.5)


def test_a_cell_with_a_fault_stays_stopped_when_an_earlier_call_fails(tmp_path):
    """The engine answers after it has taken everything, so that the failure comes after the fault."""
    rows = [question(0), Record("r1", "q1", {"context": "no input", "answers": ["x"]})]
    write_jsonl(tmp_path / "records.jsonl", (row.to_row() for row in rows))
    made = job(tmp_path, {"fail": ["r0"]})
    cell = CellRun(made, Journal(made.journal), Late(made.entry, None))
    desk = predict.Desk([cell], "", apart=True)
    desk.turn(0, cell.engine, [cell])
    assert cell.fault is not None
    assert cell.failures
    assert cell.stopped


class Late(Echo):
    """Takes all requests before it answers the first."""

    def generate(self, requests):
        yield from super().generate(list(requests))


def test_a_share_of_failures_is_one_of_the_cell_s_records(tmp_path):
    write_jsonl(tmp_path / "records.jsonl", (question(i, templates=TEMPLATES).to_row() for i in range(10)))
    made = job(tmp_path, {}, setting=COT, prompt=None)
    made = Job(**{**made.__dict__, "entry": {**made.entry, "engine": "test_turns:FailsLater"}})
    assert predict.run(limited(made, 0.3), tmp_path / "out.jsonl", tmp_path / "usage.json")["failed"] == 3
    with pytest.raises(UserError, match="3 records failed"):
        predict.run(limited(made, 0.29), tmp_path / "out.jsonl", tmp_path / "usage.json")
    # One of two records of a shard is half of the shard and a tenth of the cell.
    made = limited(job(tmp_path, {"fail": ["r0"]}, name="sharded"), 0.2)
    paths = [tmp_path / f"{shard}.json" for shard in range(5)]
    for shard, path in enumerate(paths):
        predict.run_shard(made, shard, 5, path)
    place = predict.Place(str(tmp_path / "sharded.jsonl"), str(tmp_path / "usage.json"))
    assert predict.assemble(made, paths, place)["failed"] == 1


def test_a_piece_that_fails_is_no_record_of_its_own(tmp_path):
    write_jsonl(tmp_path / "records.jsonl", (question(i, f"w{i} " * 45).to_row() for i in range(4)))
    made = limited(job(tmp_path, {"fail": ["r0"]}, setting=SUMMARY), 1)  # five pieces fail, of one record
    assert predict.run(made, tmp_path / "out.jsonl", tmp_path / "usage.json")["failed"] == 1


def test_a_cell_that_fails_takes_no_other_of_its_batch_along(tmp_path):
    """Three cells of a batch: one of which every record fails, one of which no prompt can be made, and a good one."""
    records = {
        "fails": [question(0), question(1)],
        "broken": [question(2), Record("r3", "q3", {"context": "no input", "answers": ["x"]})],
        "good": [question(4)],
    }
    jobs, places = [], []
    for name, rows in records.items():
        write_jsonl(tmp_path / f"{name}-records.jsonl", (row.to_row() for row in rows))
        made = job(tmp_path, {"fail": ["r0", "r1"]}, name=name)
        jobs.append(Job(**{**made.__dict__, "records": str(tmp_path / f"{name}-records.jsonl")}))
        places.append(predict.Place(f"{tmp_path}/{name}.jsonl", f"{tmp_path}/{name}.json", "a spec"))
    faults = predict.run_batch(jobs, places)
    assert list(faults) == ["fails", "broken"]
    assert faults["fails"] == "fails: every one of its 2 records failed; the first: told to fail"
    assert "record r3" in faults["broken"]
    assert "input" in faults["broken"]
    for name in ("fails", "broken"):
        with pytest.raises(UserError, match=re.escape(faults[name])):
            batch_files.take(tmp_path / f"{name}.jsonl", tmp_path / f"{name}-predictions.jsonl", "a spec")
        assert not (tmp_path / f"{name}-predictions.jsonl").exists()
        assert specs.is_stale(tmp_path / f"{name}.jsonl", "a spec")  # the next run tries it again
    batch_files.take(tmp_path / "good.jsonl", tmp_path / "good-predictions.jsonl", "a spec")
    assert [row["id"] for row in read_jsonl(tmp_path / "good-predictions.jsonl")] == ["r4"]
    assert not specs.is_stale(tmp_path / "good-predictions.jsonl", "a spec")
    Echo.asked = []
    predict.run_batch(jobs, places)
    assert [request.name for request in Echo.asked] == ["r0", "r1"]  # of the others the journal has the answers
