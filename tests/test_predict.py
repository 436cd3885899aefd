"""The loop from records to predictions: what is asked, what the journal answers, what a failure does."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import standin
from conftest import ROOT, TESTS
from helpers_spec import SPEC

from longflow import predict
from longflow.cell_run import CellRun
from longflow.cells import INFERENCE_VERSION
from longflow.engines import Completion, Generation
from longflow.errors import UserError
from longflow.jsonio import read_jsonl, write_jsonl
from longflow.records import Record, question_id


def record(index, context=None, question="Where?"):
    fields = {"input": question, "context": context or f"text {index} " * 20, "answers": ["x"], "length": 40}
    return Record(f"d_1_{index:04d}", question_id("d", question, ["x"]), fields)


class Bench:
    """A cell in a folder: run it, and see what was generated and what came out."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.records = folder / "records.jsonl"
        self.count = folder / "count"
        monkeypatch.setenv("STANDIN_COUNT", str(self.count))

    def write(self, records):
        write_jsonl(self.records, (r.to_row() for r in records))

    def job(self, spec=None, options=None, identity=None, **changes):
        entry = {"engine": "standin:StandIn", "options": options or {}, "window": 4096, "chat": "none"}
        model = {"identity": identity or {"name": "a"}, "location": None, "window": None}
        return predict.Job(
            name="cell",
            records=str(self.records),
            model=model,
            entry=entry,
            spec={**SPEC, **(spec or {}), **changes},
            journal=str(self.folder / "journal"),
        )

    def run(self, **changes):
        """Run the cell and return its rows and how many requests were generated."""
        self.count.unlink(missing_ok=True)
        predict.run(self.job(**changes), self.folder / "out.jsonl", self.folder / "usage.json")
        lines = self.count.read_text().splitlines() if self.count.exists() else []
        return list(read_jsonl(self.folder / "out.jsonl")), sum(x.startswith("request") for x in lines)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    made = Bench(tmp_path, monkeypatch)
    made.write([record(i) for i in range(10)])
    return made


def test_every_record_is_answered_in_order_and_the_second_run_generates_nothing(bench):
    rows, generated = bench.run()
    assert generated == 10
    assert [row["id"] for row in rows] == [f"d_1_{i:04d}" for i in range(10)]
    assert list(rows[0])[:6] == ["pred", "answers", "gold_ans", "input", "all_classes", "length"]
    before = (bench.folder / "out.jsonl").read_bytes()
    assert bench.run()[1] == 0
    assert (bench.folder / "out.jsonl").read_bytes() == before


def test_no_model_and_no_tokenizer_is_loaded_if_the_journal_has_it_all(bench, monkeypatch):
    bench.run()

    def forbidden(self):
        raise AssertionError("the tokenizer was loaded")

    monkeypatch.setattr(standin.StandIn, "tokenizer", forbidden)
    assert bench.run()[1] == 0


def test_raising_the_limit_keeps_records_that_were_not_truncated(bench):
    bench.write([record(0), record(1, "long words " * 600), record(2)])
    rows, generated = bench.run(max_prompt_tokens=500)
    assert generated == 3
    assert [row["kept_head"] is not None for row in rows] == [False, True, False]
    rows, generated = bench.run(max_prompt_tokens=2000)
    assert generated == 1
    assert [row["kept_head"] for row in rows] == [None] * 3
    assert bench.run(max_prompt_tokens=500)[1] == 0  # and back is free


def test_more_records_run_only_the_new_ones(bench):
    assert bench.run(limit=4)[1] == 4
    assert bench.run(limit=7)[1] == 3
    rows, generated = bench.run(limit=2)
    assert (len(rows), generated) == (2, 0)


def test_a_changed_record_is_asked_anew(bench):
    bench.run()
    bench.write([record(i) for i in range(9)] + [record(9, question="Who?")])
    assert bench.run()[1] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "{input}\n{context}"},
        {"generation": {**SPEC["generation"], "max_new_tokens": 9}},
        {"version": INFERENCE_VERSION + 1},
        {"model": {**SPEC["model"], "decode": "merged"}},
        {"model": {**SPEC["model"], "prefill_chunk": 512}},
        {"model": {**SPEC["model"], "dtype": "float32"}},
        {"model": {**SPEC["model"], "chat": "reference:llama2"}},
    ],
)
def test_what_may_change_an_answer_is_in_the_key(bench, change):
    bench.run()
    assert bench.run(spec=change)[1] == 10
    assert bench.run()[1] == 0


def test_another_model_under_the_same_name_is_asked_anew(bench):
    bench.run()
    assert bench.run(identity={"name": "b"})[1] == 10


def test_the_same_prompt_twice_is_generated_once(bench):
    bench.write([record(0), record(0), record(1)])
    rows, generated = bench.run()
    assert (len(rows), generated) == (3, 2)
    assert rows[0]["pred"] == rows[1]["pred"]


def test_sampled_answers_have_a_seed_each():
    greedy = Generation(8, seed=5).to_spec()
    assert greedy == Generation(8, top_p=0.5).to_spec()
    sampled = Generation(8, temperature=0.7, seed=5).to_spec()
    assert sampled != Generation(8, temperature=0.7, seed=6).to_spec()


def test_seeds_differ_by_record_and_by_run_seed(bench):
    def seeds(seed):
        spec = {**SPEC, "generation": {**SPEC["generation"], "temperature": 0.7, "seed": seed}}
        job = bench.job(spec=spec)
        with predict.Journal(bench.folder / "none") as journal:
            cell = CellRun(job, journal, standin.StandIn(job.entry, None))
            return [request.generation.seed for request in cell.requests()][:3]

    assert len(set(seeds(1))) == 3
    assert seeds(1) == seeds(1)
    assert not set(seeds(1)) & set(seeds(2))


def test_a_failure_is_a_row_with_a_reason_and_is_tried_again(bench):
    rows, generated = bench.run(options={"fail": "_0003"})
    assert generated == 9
    assert (rows[3]["pred"], rows[3]["finish_reason"], rows[3]["error"]) == ("", "error", "it was told to fail")
    assert all(row["error"] is None for i, row in enumerate(rows) if i != 3)
    rows, generated = bench.run(options={"fail": "_none"})
    assert (generated, rows[3]["error"]) == (1, None)


def test_an_empty_answer_is_an_answer(bench):
    rows, _ = bench.run(options={"say": ""})
    assert all(row["pred"] == "" and row["error"] is None for row in rows)
    assert bench.run(options={"say": ""})[1] == 0


def test_a_limit_that_leaves_no_room_for_the_answer_is_refused(bench):
    with pytest.raises(UserError, match=r"exceed the model's window of 4096; set max_prompt_tokens to 408\d or less"):
        bench.run(max_prompt_tokens=4090)


def test_a_field_the_prompt_names_and_the_record_lacks(bench):
    with pytest.raises(UserError, match=r"records\.jsonl, record d_1_0000: the prompt template names \{topic\}"):
        bench.run(prompt="{topic}{context}")


def test_records_may_bring_their_template_and_a_data_set_may_not_be_wrapped(bench, monkeypatch):

    seen = []
    whole = standin.StandIn.generate

    def spy(self, requests):
        def passing():
            for request in requests:
                seen.append((request.prompt, request.special_tokens))
                yield request

        return whole(self, passing())

    monkeypatch.setattr(standin.StandIn, "generate", spy)
    made = [record(0), record(1)]
    for each in made:
        each.fields["template"] = "T {context} Q {input} A"
    bench.write(made)
    chat = {**SPEC["model"], "chat": "reference:llama2"}
    bench.run(spec={"prompt": None, "model": chat})
    text = "T " + made[0].fields["context"] + " Q Where? A"
    assert seen[0] == (f"[INST]{text}[/INST]\n\n", True)
    seen.clear()
    bench.run(spec={"prompt": None, "model": chat, "wrap": False})
    assert seen[0] == (text, True)


def test_a_record_without_a_template_where_one_is_needed(bench):
    with pytest.raises(UserError, match="record d_1_0000: brings no prompt template"):
        bench.run(spec={"prompt": None})


def test_a_question_with_choices_keeps_what_its_scores_need(bench):
    fields = {
        "_id": "q1", "question": "Which?", "answer": "B", "choice_A": "a", "choice_B": "b", "choice_C": "c",
        "choice_D": "d", "domain": "D", "sub_domain": "S", "difficulty": "easy", "length": "short",
        "context": "text", "template": "{context} {question} {choice_A}",
    }  # fmt: skip
    bench.write([Record("q1", "q1", fields)])
    rows, _ = bench.run(spec={"prompt": None}, options={"say": "The correct answer is (B)"})
    assert (rows[0]["answers"], rows[0]["input"]) == (["B"], "Which?")
    assert (rows[0]["_id"], rows[0]["difficulty"], rows[0]["length"], rows[0]["domain"]) == ("q1", "easy", "short", "D")
    assert not {"context", "template"} & set(rows[0])


def test_reasoning_is_kept_apart_and_the_answer_has_its_own_limit(bench):
    said = "<think>" + "because " * 30 + "</think> " + "word " * 20
    thinking = {**SPEC["model"], "reasoning": {"start": "<think>", "end": "</think>", "max_tokens": 40}}
    rows, generated = bench.run(spec={"model": thinking}, options={"say": said})
    assert generated == 10
    assert rows[0]["pred"] == "word " * 7 + "word"  # max_new_tokens is 8
    assert rows[0]["reasoning"] == ("because " * 30).strip()
    assert rows[0]["reasoning_closed"] is True
    # Other markers make another answer of the same text, without asking again.
    other = {**thinking, "reasoning": {**thinking["reasoning"], "end": "</thought>"}}
    rows, generated = bench.run(spec={"model": other}, options={"say": said})
    assert generated == 0
    assert (rows[0]["pred"], rows[0]["reasoning_closed"]) == ("", False)


def test_an_engine_that_answers_what_was_not_asked(bench, monkeypatch):

    def wrong(self, requests):
        for _ in requests:
            yield Completion("elsewhere", "x", "stop")

    monkeypatch.setattr(standin.StandIn, "generate", wrong)
    with pytest.raises(UserError, match="answered a request it was not asked"):
        bench.run()


@pytest.mark.parametrize("made", [iter(()), []])
def test_an_engine_that_gives_up_in_silence(bench, monkeypatch, made):

    monkeypatch.setattr(standin.StandIn, "generate", lambda self, requests: made)
    with pytest.raises(UserError, match="every one of its 10 records failed; the first: the engine gave no answer"):
        bench.run()
    assert not (bench.folder / "out.jsonl").exists()


def test_an_engine_that_stops_half_way_leaves_failed_records_and_not_missing_ones(bench, monkeypatch):

    whole = standin.StandIn.generate

    def half(self, requests):
        for _, completion in zip(range(4), whole(self, requests), strict=False):
            yield completion

    monkeypatch.setattr(standin.StandIn, "generate", half)
    rows, _ = bench.run()
    assert [row["error"] for row in rows] == [None] * 4 + ["the engine gave no answer"] * 6


def test_a_cell_in_which_everything_fails_is_an_error(bench):
    with pytest.raises(UserError, match="cell: every one of its 10 records failed; the first: it was told to fail"):
        bench.run(options={"fail": ""})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"text": None}, "gave a text of type NoneType"),
        ({"text": 5}, "gave a text of type int"),
        ({"text": b"x"}, "gave a text of type bytes"),
        ({"finish_reason": None}, "gave finish_reason None"),
        ({"finish_reason": "eos"}, "gave finish_reason 'eos'"),
        ({"prompt_tokens": 3.0}, "gave prompt_tokens 3.0"),
        ({"answer_tokens": "3"}, "gave answer_tokens '3'"),
        ({"seconds": float("nan")}, "gave seconds nan"),
    ],
)
def test_a_completion_that_is_none_is_refused_by_field(bench, monkeypatch, wrong, words):

    def made(self, requests):
        for request in requests:
            yield Completion(**{"key": request.key, "text": "x", "finish_reason": "stop", **wrong})

    monkeypatch.setattr(standin.StandIn, "generate", made)
    with pytest.raises(UserError, match="engine 'standin:StandIn'") as caught:
        bench.run()
    assert words in str(caught.value)


@pytest.mark.parametrize(("made", "words"), [(None, "returned None"), ([("k", "text")], "gave a tuple")])
def test_a_generate_of_another_kind_is_refused(bench, monkeypatch, made, words):

    monkeypatch.setattr(standin.StandIn, "generate", lambda self, requests: made)
    with pytest.raises(UserError, match=words):
        bench.run()


def test_counts_of_numpy_and_repeated_answers_are_taken(bench, monkeypatch):
    import numpy

    def made(self, requests):
        for request in requests:
            for _ in range(2):
                yield Completion(request.key, "x", "stop", numpy.int64(3), numpy.int32(1), numpy.float32(0.5))

    monkeypatch.setattr(standin.StandIn, "generate", made)
    rows, _ = bench.run()
    assert (rows[0]["sent_tokens"], rows[0]["answer_tokens"]) == (3, 1)
    assert json.loads((bench.folder / "usage.json").read_text())["generated_here"] == 10
    monkeypatch.undo()
    assert bench.run()[1] == 0


def test_another_tokenizer_of_a_served_model_cuts_anew(bench):
    bench.write([record(0, "long words " * 900)])
    job = bench.job(max_prompt_tokens=100)

    def known(tokenizer):
        job.model["tokenizer"] = {"folder": tokenizer}
        with predict.Journal(bench.folder / "one") as journal:
            cell = CellRun(job, journal, standin.StandIn(job.entry, None))
            list(cell.requests())
            return len(journal.renderings)

    assert [known(name) for name in ("a", "a", "b")] == [1, 1, 2]


def test_text_a_model_should_not_say_survives(bench):
    said = 'line\nbreak \u2028 "quote" \ud800 lone 中文 \x00'
    rows, _ = bench.run(options={"say": said})
    assert rows[0]["pred"] == said
    assert bench.run(options={"say": said})[0][0]["pred"] == said


def test_usage_sums_what_the_answers_cost(bench):
    rows, _ = bench.run()
    first = json.loads((bench.folder / "usage.json").read_text())
    assert first["prompt_tokens"] == sum(row["sent_tokens"] for row in rows)
    assert first["generated_here"] == 10
    bench.run()
    again = json.loads((bench.folder / "usage.json").read_text())
    assert again["generated_here"] == 0
    assert again["generation_seconds"] == first["generation_seconds"]


def start(folder, bench_records, delay, program):
    """Run a cell in a process of its own with the stand-in engine."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{TESTS}",
        "STANDIN_COUNT": str(folder / "count"),
        "STANDIN_DELAY": str(delay),
    }
    return subprocess.Popen([sys.executable, "-c", program, str(folder)], env=environment)


PROGRAM = """
import json, sys
from pathlib import Path
from longflow import predict
folder = Path(sys.argv[1])
job = predict.Job(**json.loads((folder / "job.json").read_text()))
predict.run(job, folder / "out.jsonl", folder / "usage.json")
"""


def test_killed_again_and_again_it_ends_with_the_same_bytes_and_no_request_twice(bench):
    """kill -9 at ten different moments: each loses at most the one request in flight."""
    bench.write([record(i) for i in range(40)])
    bench.run()
    expected = (bench.folder / "out.jsonl").read_bytes()
    kills = 0
    for attempt in range(10):
        folder = bench.folder / str(attempt)
        folder.mkdir()
        job = bench.job()
        values = {**job.__dict__, "journal": str(folder / "journal")}
        (folder / "job.json").write_text(json.dumps(values))
        process = start(folder, bench.records, 0.004, PROGRAM)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and process.poll() is None:
            count = folder / "count"
            if count.exists() and count.read_text().count("request") > attempt * 3:
                process.kill()
                kills += 1
                break
            time.sleep(0.001)
        process.wait()
        assert start(folder, bench.records, 0, PROGRAM).wait() == 0
        assert (folder / "out.jsonl").read_bytes() == expected
        assert (folder / "count").read_text().count("request") <= 40 + 1
        assert not list(folder.glob(".out*"))
    assert kills >= 8


@pytest.mark.slow
def test_kill_9_with_the_real_model_loses_at_most_what_is_in_flight(tmp_path, smollm2):
    from longflow import models

    def job(folder):
        entry = {
            "engine": "transformers", "path": str(smollm2), "revision": None, "tokenizer": None, "dtype": "float32",
            "attention": "sdpa", "gpu": 0, "threads": 2, "trust_remote_code": False, "config_overrides": {},
            "chat": "template", "chat_date": "2024-07-26", "window": 8192,
        }  # fmt: skip
        return {
            "name": "cell",
            "records": str(tmp_path / "records.jsonl"),
            "model": models.resolve(entry, tmp_path),
            "entry": entry,
            "spec": {**SPEC, "model": {**SPEC["model"], "chat": "template", "dtype": "float32"}},
            "journal": str(folder / "journal"),
        }

    write_jsonl(tmp_path / "records.jsonl", (record(i).to_row() for i in range(12)))

    def begin(folder):
        folder.mkdir(exist_ok=True)
        (folder / "job.json").write_text(json.dumps(job(folder)))
        return start(folder, None, 0, PROGRAM)

    def kept(folder):
        return sum(line.count(b'"completion"') for path in folder.glob("journal/*.jsonl") for line in path.open("rb"))

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert begin(whole).wait() == 0
    process = begin(broken)
    deadline = time.monotonic() + 120
    while kept(broken) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    before = kept(broken)
    assert 5 <= before < 12
    assert not (broken / "out.jsonl").exists()
    assert begin(broken).wait() == 0
    assert json.loads((broken / "usage.json").read_text())["generated_here"] == 12 - before
    assert (broken / "out.jsonl").read_bytes() == (whole / "out.jsonl").read_bytes()
    assert Path(broken / "out.jsonl").stat().st_size > 0
