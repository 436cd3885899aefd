"""Thinking models: the reasoning is kept, and never scored by accident."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longflow import config
from longflow.errors import UserError
from longflow.reasoning import Reasoning, take_apart
from longflow.score import score_cell

MARKS = Reasoning(max_tokens=50)


@pytest.mark.parametrize(
    ("text", "finish", "answer", "reasoning", "closed"),
    [
        ("<think>Paris? Rome?</think>\n\nRome", "stop", "Rome", "Paris? Rome?", True),
        ("Paris? Rome?</think> Rome", "stop", "Rome", "Paris? Rome?", True),  # the template began the reasoning
        ("<think></think>Rome", "stop", "Rome", "", True),
        ("<think>a</think>b</think> c", "stop", "c", "a</think>b", True),
        ("Rome", "stop", "Rome", "", True),  # it did not think
        ("<think>It must be Rome", "length", "", "It must be Rome", False),
        ("It must be Rome", "length", "", "It must be Rome", False),  # begun by the template, cut off
        ("<think>It must be Rome", "stop", "", "It must be Rome", False),
        ("<think>a</think> Rome and", "length", "Rome and", "a", True),  # the answer was cut, not the reasoning
        ("", "stop", "", "", True),
        ("<think>思考</think>罗马", "stop", "罗马", "思考", True),
    ],
)
def test_a_text_is_taken_apart(text, finish, answer, reasoning, closed):
    thought = take_apart(text, finish, MARKS)
    assert (thought.answer, thought.reasoning, thought.closed) == (answer, reasoning, closed)


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_word_of_the_reasoning_reaches_the_answer(thought, answer):
    found = take_apart(f"<think>{thought}</think>{answer}", "stop", MARKS)
    assert found.answer == answer.rpartition("</think>")[2].strip()
    assert take_apart(f"<think>{thought}", "length", MARKS).answer == (
        "" if "</think>" not in thought else thought.rpartition("</think>")[2].strip()
    )


def test_other_markers():
    marks = Reasoning(start="[THINK]", end="[/THINK]", max_tokens=5)
    assert take_apart("[THINK]x[/THINK]y", "stop", marks).answer == "y"
    assert take_apart("<think>x</think>y", "stop", marks).answer == "<think>x</think>y"


def build(**reasoning):
    model = {"engine": "a:B", "chat": "none", "window": 4096, "reasoning": reasoning}
    return {"run": {"benchmarks": ["demo"], "models": ["m"]}, "models": {"m": model}}


def test_its_tokens_count_against_the_window():
    config.parse(build(max_tokens=500))
    with pytest.raises(UserError, match="exceed the window of 4096"):
        config.parse(build(max_tokens=1000))
    with pytest.raises(UserError, match=r"models\.m\.reasoning"):
        config.parse(build(start="<think>"))


def test_a_record_cut_off_inside_its_reasoning_is_counted_and_scores_nothing():
    rows = [
        {"pred": "", "answers": ["Rome"], "reasoning": "Rome", "reasoning_closed": False, "finish_reason": "length"},
        {"pred": "Rome", "answers": ["Rome"], "reasoning": "x", "reasoning_closed": True, "finish_reason": "stop"},
    ]
    spec = {
        "benchmark": "demo", "model": "m", "setting": "full", "dataset": "needle_en", "length": "250",
        "metric": "qa_f1_score", "language": "en", "category": "single-hop QA", "n_expected": 2,
    }  # fmt: skip
    _, summary = score_cell(rows, spec)
    assert summary["score"] == 50.0
    assert (summary["counts"]["reasoning_open"], summary["counts"]["ran_out"]) == (1, 1)
