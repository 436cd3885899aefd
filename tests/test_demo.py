"""The demo benchmark and the builder behind it."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from longflow import benchmarks, builder
from longflow.benchmarks import demo
from longflow.builder import Distractors, Level, Question, Questions
from longflow.errors import UserError
from longflow.jsonio import dump_line
from longflow.metrics import gates
from longflow.records import Record

PASSAGE_SETS = ["singlehop_en", "multihop_en", "singlehop_zh"]
SETS = [*PASSAGE_SETS, "needle_en"]
LEVELS = ["250", "500", "1000"]
TARGET = {"250": 250, "500": 500, "1000": 1000, "4k": 4000, "64k": 64000}


def build(dataset: str, length: str, **options: object) -> list[Record]:
    task = benchmarks.load("demo").task(dataset)
    chosen = demo.Options.model_validate(options)
    return list(demo.prepare(task, length, chosen, demo.sources(task, length, chosen, "resources")))


@functools.cache
def default(dataset: str, length: str) -> tuple[Record, ...]:
    return tuple(build(dataset, length))


def questions(dataset: str) -> list[Question]:
    return builder.read_questions(demo.PROJECT / "demo" / f"{dataset}.yaml").questions


def texts(record: Record, spans: tuple[tuple[int, int], ...]) -> list[str]:
    return [record.fields["context"][start:end] for start, end in spans]


def bare(answer: str) -> str:
    return re.sub(r"^(a|an|the|in) ", "", answer.casefold())


def passages(context: str) -> list[str]:
    """The passages of a context, without their headings."""
    return re.split(r"(?:^|\n\n)### (?:Passage |文章)\d+\n", context)[1:]


def size(text: str, language: str) -> int:
    return len(re.findall(r"\S+", text)) if language == "en" else len(re.sub(r"\s", "", text))


@pytest.mark.parametrize("dataset", SETS)
@pytest.mark.parametrize("length", [*LEVELS, "4k"])
def test_spans_are_the_sources_texts(dataset: str, length: str) -> None:
    for record, question in zip(default(dataset, length), itertools.cycle(questions(dataset)), strict=False):
        assert record.fields["input"] == question.question
        assert texts(record, record.evidence) == question.evidence
        assert texts(record, record.confusing) == question.confusing_facts == record.fields["confusing_facts"]


@pytest.mark.parametrize("dataset", SETS)
def test_same_questions_at_every_level(dataset: str) -> None:
    def asked(length: str) -> list[tuple[str, str, list[str]]]:
        return [(r.question_id, r.fields["input"], texts(r, r.evidence)) for r in default(dataset, length)]

    assert asked("250") == asked("500") == asked("1000") == asked("4k")
    expected = 1 if dataset == "needle_en" else benchmarks.load("demo").task(dataset).n
    assert len({name for name, _, _ in asked("250")}) == expected


@pytest.mark.parametrize("dataset", SETS)
@pytest.mark.parametrize("length", [*LEVELS, "4k"])
def test_length_is_measured_and_near_its_level(dataset: str, length: str) -> None:
    for record in default(dataset, length):
        language = record.fields["language"]
        target = TARGET[length] * (2 if language == "zh" else 1)
        assert record.fields["length"] == size(record.fields["context"], language)
        assert abs(record.fields["length"] - target) <= 0.03 * target


def test_long_level_is_built_fast() -> None:
    start = time.perf_counter()
    records = build("multihop_en", "64k", records=2)
    assert time.perf_counter() - start < 10
    assert all(abs(record.fields["length"] - 64_000) <= 100 for record in records)
    assert len(set(passages(records[0].fields["context"]))) == len(passages(records[0].fields["context"]))


def test_fields_are_lv_evals() -> None:
    record = default("singlehop_en", "250")[0]
    assert record.id == "singlehop_en_250_0000"
    assert list(record.fields)[:8] == [
        "input", "context", "answers", "length", "dataset", "language", "answer_keywords", "confusing_facts",
    ]  # fmt: skip
    assert record.fields["all_classes"] is None
    assert all(record.fields["answer_keywords"] is None for record in default("needle_en", "250"))


@pytest.mark.parametrize("dataset", SETS)
@pytest.mark.parametrize("length", [*LEVELS, "4k"])
def test_answers_stand_in_the_evidence_and_nowhere_else(dataset: str, length: str) -> None:
    for record in default(dataset, length):
        context = record.fields["context"]
        rest = context
        for start, end in sorted(record.evidence, reverse=True):
            rest = rest[:start] + "\x00" + rest[end:]
        for answer in record.fields["answers"]:
            assert bare(answer) in " ".join(texts(record, record.evidence)).casefold()
            assert bare(answer) not in rest.casefold()


@pytest.mark.parametrize("dataset", SETS)
def test_sources_are_sound(dataset: str) -> None:
    """Every question of the files, not only those of the default run."""
    task = benchmarks.load("demo").task(dataset)
    asked = questions(dataset)
    assert len(asked) >= 20 or dataset == "needle_en"
    assert len({question.question for question in asked}) == len(asked)
    hops = {"multihop_en": {2, 3}}.get(dataset, {1})
    for question in asked:
        assert len(question.evidence) in hops
        assert question.confusing_facts
        for answer in map(bare, question.answers):
            assert answer in " ".join(question.evidence).casefold()
            assert not any(answer in fact.casefold() for fact in question.confusing_facts)
            assert answer not in question.question.casefold()
        if task.metric in ("qa_f1_score_with_gold_ans", "qa_f1_zh_score_with_gold_ans"):
            answer = question.answers[0]
            assert getattr(gates, task.metric)(answer, answer, question.answer_keywords) == 1
            fact = question.confusing_facts[0]
            assert getattr(gates, task.metric)(fact, answer, question.answer_keywords) == 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_written_document_holds_an_answer(language: str) -> None:
    written = builder.read_distractors(demo.PROJECT / "demo" / f"distractors_{language}.yaml").documents
    assert len(set(written)) == len(written)
    for dataset in (name for name in SETS if name.endswith(language)):
        for question in questions(dataset):
            for answer in map(bare, question.answers):
                assert not [text for text in written if answer in text.casefold()]


@pytest.mark.parametrize("dataset", PASSAGE_SETS)
@pytest.mark.parametrize("length", [*LEVELS, "4k"])
def test_no_document_twice_in_a_context(dataset: str, length: str) -> None:
    for record in default(dataset, length):
        found = passages(record.fields["context"])
        assert len(found) > 3
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_generated_documents_never_repeat_and_suffice(language: str) -> None:
    """Beyond 256k words (512k characters) without a document twice, every placeholder filled."""
    distractors = builder.read_distractors(demo.PROJECT / "demo" / f"distractors_{language}.yaml")
    seen: set[bytes] = set()
    amount = 0
    for text in distractors.stream("test"):
        assert "{" not in text
        key = hashlib.blake2b(text.encode(), digest_size=12).digest()
        assert key not in seen
        seen.add(key)
        amount += size(text, language)
        if amount > 600_000:
            return
    pytest.fail(f"only {amount} units can be generated")


def test_builds_are_equal_and_follow_the_seed() -> None:
    for dataset in SETS:
        once, again, other = build(dataset, "500"), build(dataset, "500"), build(dataset, "500", seed=7)
        assert once == again
        assert [r.question_id for r in once] == [r.question_id for r in other]
        assert all(a.fields["context"] != b.fields["context"] for a, b in zip(once, other, strict=True))


def test_another_process_with_another_hash_seed_builds_the_same_bytes() -> None:
    """Nothing may hang on the interpreter's string hashes."""
    program = (
        "import sys; sys.path.insert(0, 'tests'); from test_demo import build, dump_line;"
        "sys.stdout.write(''.join(dump_line(r.to_row()) for d in ('multihop_en', 'needle_en', 'singlehop_zh')"
        " for r in build(d, '4k')))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=demo.PROJECT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(demo.PROJECT)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    here = "".join(
        dump_line(record.to_row())
        for dataset in ("multihop_en", "needle_en", "singlehop_zh")
        for record in build(dataset, "4k")
    )
    assert outputs == {here.encode()}


@pytest.mark.parametrize("dataset", PASSAGE_SETS)
def test_longer_levels_extend_shorter_ones(dataset: str) -> None:
    """All passages of a level but the one that makes it fit are found, in the same order, in the next level."""
    for short, long in itertools.pairwise([*LEVELS, "4k"]):
        for small, large in zip(default(dataset, short), default(dataset, long), strict=True):
            own = set(texts(small, small.evidence) + texts(small, small.confusing))
            few, many = (
                [text for text in passages(record.fields["context"]) if text not in own] for record in (small, large)
            )
            # One passage, chosen to close the last gap, may be cut short or stand elsewhere in the longer level.
            ways = [few, *(few[:i] + few[i + 1 :] for i in range(len(few)))]
            assert any(kept == [text for text in many if text in set(kept)] for kept in ways)


def test_more_records_extend_fewer() -> None:
    assert build("singlehop_en", "250", records=9)[:6] == list(default("singlehop_en", "250"))


def test_evidence_is_spread_over_the_depth() -> None:
    records = build("singlehop_en", "1000", records=20)
    depths = [record.evidence[0][0] / len(record.fields["context"]) for record in records]
    assert {int(depth * 4) for depth in depths} == {0, 1, 2, 3}
    assert {record.evidence[0][0] < record.confusing[0][0] for record in records} == {True, False}


@pytest.mark.parametrize("length", [*LEVELS, "4k"])
@pytest.mark.parametrize("n", [2, 6, 15])
def test_needle_positions_are_distinct_and_spread(length: str, n: int) -> None:
    records = build("needle_en", length, records=n)
    haystacks, starts = set(), []
    for record in records:
        context = record.fields["context"]
        ((start, end),) = record.evidence
        starts.append(start)
        haystacks.add(" ".join((context[:start] + " " + context[end:]).split()))
    assert len(haystacks) == 1
    assert len({record.question_id for record in records}) == 1
    assert starts == sorted(set(starts))
    assert starts[0] == 0
    assert records[-1].evidence[0][1] == len(records[-1].fields["context"])
    longest = max(len(sentence) for sentence in builder.sentences(records[-1].fields["context"], "en"))
    for k, start in enumerate(starts):
        expected = k / (n - 1) * starts[-1]
        assert abs(start - expected) <= 3 * longest + 0.1 * starts[-1]


def test_needle_records_share_their_prefix() -> None:
    for left, right in itertools.pairwise(default("needle_en", "1000")):
        start = left.evidence[0][0]
        assert left.fields["context"][:start] == right.fields["context"][:start] or start == 0


def test_single_needle_stands_in_the_middle() -> None:
    (record,) = build("needle_en", "1000", records=1)
    assert 0.3 < record.evidence[0][0] / len(record.fields["context"]) < 0.7


@pytest.mark.parametrize("dataset", PASSAGE_SETS)
def test_too_many_records_is_a_clear_error(dataset: str) -> None:
    with pytest.raises(UserError, match=rf"{dataset}: 500 records.*{len(questions(dataset))} questions"):
        build(dataset, "250", records=500)


def test_too_many_needles_is_a_clear_error() -> None:
    with pytest.raises(UserError, match=r"needle_en: 500 records.*room for \d+ needle positions"):
        build("needle_en", "250", records=500)
    assert len(build("needle_en", "16k", records=500)) == 500


def test_too_short_a_level_is_a_clear_error() -> None:
    with pytest.raises(UserError, match=r"level 20.*alone take"):
        build("multihop_en", "20")
    with pytest.raises(UserError, match="'full' is not a level"):
        build("multihop_en", "full")


def test_missing_sources_are_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"documents.*has no file needle_en\.yaml"):
        build("needle_en", "250", documents=str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("language: en\nquestions: []", "questions"),
        ("language: fr\nquestions: [{question: q, answers: [a], evidence: [a]}]", "language"),
        ("language: en\nquestions: [{question: q, answers: [a], evidence: [a], answer_keyword: a}]", "answer_keyword"),
        ("language: en\nquestions: [{question: q, answers: [], evidence: [a]}]", r"questions\.1\.answers"),
        ("language: [", "not YAML"),
        ("- a", "whole file"),
    ],
)
def test_malformed_sources_are_a_clear_error(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "questions.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        builder.read_questions(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_word_list_is_a_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "distractors.yaml"
    kinds = [{"subject": ["town"], "sentences": [["{town} is near {river2}."]]}]
    file.write_text(yaml.safe_dump({"language": "en", "generator": {"words": {"town": ["A"]}, "kinds": kinds}}))
    with pytest.raises(UserError, match="kinds, number 1: no word list 'river'"):
        builder.read_distractors(file)


def test_own_documents_without_a_generator(tmp_path: Path) -> None:
    """The builder serves any folder of the same shape; too few documents are an error, not a short context."""
    asked = Questions(
        language="en", questions=[Question(question="Who?", answers=["Zed"], evidence=["It was Zed who came."])]
    )
    documents = [f"Document {i} tells of nothing. It has {i} words." for i in range(30)]
    stuff = Distractors(language="en", documents=[*documents, "Here Zed is named by a document that must not be used."])
    (record,) = builder.passage_records(asked, stuff, "mine", Level("200", 200), 1, 1)
    assert record.fields["context"].count("Zed") == 1
    assert abs(record.fields["length"] - 200) <= 10
    with pytest.raises(UserError, match=r"fill \d+ of 5000 words; add distractors"):
        list(builder.passage_records(asked, stuff, "mine", Level("5k", 5000), 1, 1))


@settings(deadline=None, max_examples=25)
@given(
    dataset=st.sampled_from(SETS),
    length=st.integers(200, 3000).map(str),
    seed=st.integers(0, 2**32),
)
def test_any_level_and_seed(dataset: str, length: str, seed: int) -> None:
    for record, question in zip(
        build(dataset, length, seed=seed, records=3), itertools.cycle(questions(dataset)), strict=False
    ):
        target = int(length) * (2 if record.fields["language"] == "zh" else 1)
        assert abs(record.fields["length"] - target) <= 0.05 * target
        assert texts(record, record.evidence) == question.evidence
        assert texts(record, record.confusing) == question.confusing_facts
        assert "\n\n\n" not in record.fields["context"]
        assert record.fields["context"] == record.fields["context"].strip()


def test_table_matches_the_sources() -> None:
    table = benchmarks.load("demo")
    assert list(table.tasks) == ["singlehop_en", "multihop_en", "needle_en", "singlehop_zh"]
    assert table.any_length
    assert table.length_known("256k")
    for task in table.tasks.values():
        prompt = task.prompt.format(**default(task.dataset, "250")[0].fields)
        assert default(task.dataset, "250")[0].fields["context"] in prompt
