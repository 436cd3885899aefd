"""Two sets of results side by side: every difference is named, protocol first."""

import copy
import re
import subprocess
import sys

from conftest import ROOT
from helpers_scores import summary

from longflow.compare import ABSENT, Difference, differences
from longflow.jsonio import read_json, write_json, write_jsonl

PROTOCOL = {
    "benchmark": "demo",
    "model": "small",
    "chat": {"chat": "template"},
    "truncation": {"max_prompt_tokens": 7500},
    "generation": {"needle_en": {"max_new_tokens": 8}},
    "records": {"truncated": 0},
    "cells": {"needle_en/250": {"truncated": 0}},
}


def results(folder, protocol=PROTOCOL, model="small", scores=((250, 50.0), (500, 25.0)), records=(1.0, 0.0)):
    """A folder of results with one table."""
    write_json(folder / f"tables/demo/{model}/full/protocol.json", {**protocol, "model": model})
    for length, score in scores:
        path = folder / f"scores/demo/{model}/full/needle_en/{length}.json"
        made = summary("needle_en", str(length), score, model, benchmark="demo")
        write_json(path, made)
        write_jsonl(path.with_suffix(".jsonl"), ({"id": f"r{i}", "score": x} for i, x in enumerate(records)))
    return folder


def compare(*sides):
    done = subprocess.run(
        [sys.executable, "-m", "scripts.compare", *map(str, sides)], cwd=ROOT, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_the_same_is_equal(tmp_path):
    a, b = results(tmp_path / "a"), results(tmp_path / "b")
    status, text, _ = compare(a, b)
    assert (status, text.splitlines()[-1]) == (0, "equal")


def test_the_protocol_is_named_before_the_scores_with_nested_keys(tmp_path):
    other = copy.deepcopy(PROTOCOL)
    other["truncation"]["max_prompt_tokens"] = 3500
    other["records"]["truncated"] = 2
    del other["generation"]["needle_en"]["max_new_tokens"]
    a = results(tmp_path / "a")
    b = results(tmp_path / "b", other, scores=[(250, 75.0), (1000, 1.0)], records=(1.0, 0.5))
    status, text, _ = compare(a, b)
    assert status == 1
    text = " ".join(text.split())  # the columns' widths do not matter
    expected = [
        "truncation.max_prompt_tokens: 7500 | 3500",
        "generation.needle_en.max_new_tokens: 8 | (absent)",
        "records.truncated: 0 | 2",
        "needle_en/250 50.00 75.00 +25.00 1 of 2",
        "only in A: needle_en/500",
        "only in B: needle_en/1000",
        " different",
    ]
    assert all(line in text for line in expected), text
    assert sorted(expected, key=text.index) == expected


def test_equal_scores_out_of_other_records_are_no_equality(tmp_path):
    a, b = results(tmp_path / "a"), results(tmp_path / "b", records=(0.0, 1.0))
    status, text, _ = compare(a, b)
    assert status == 1
    assert "scores: 2 of 2 cells differ" in text
    assert "2 of 2\n" in text


def test_models_of_other_names_are_compared_if_they_are_named_or_alone(tmp_path):
    a, b = results(tmp_path / "a"), results(tmp_path / "b", model="large")
    assert compare(a, b)[0] == 0
    results(tmp_path / "a", model="third", scores=[(250, 1.0)])
    assert compare(a, b)[0] == 2  # which one?
    assert compare(f"{a}:small", b)[0] == 0
    status, text, _ = compare(f"{a}:small", f"{a}:third")
    assert status == 1
    assert "protocol: equal" in text  # the name is what was asked for


def test_a_table_that_one_side_lacks_is_named(tmp_path):
    a, b = results(tmp_path / "a"), results(tmp_path / "b")
    results(a, model="more")
    status, text, _ = compare(a, b)
    assert status == 1
    assert "only in A: demo/more/full" in text


def test_bad_input_is_one_line(tmp_path):
    good = results(tmp_path / "good")
    (tmp_path / "empty").mkdir()
    broken = results(tmp_path / "broken")
    (broken / "tables/demo/small/full/protocol.json").write_text("[1]")
    torn = results(tmp_path / "torn")
    (torn / "scores/demo/small/full/needle_en/250.json").write_text("{")
    other = results(tmp_path / "other", model="a")
    results(other, model="b")
    for sides, said in {
        (good, tmp_path / "absent"): "there is no folder",
        (tmp_path / "empty", good): "no tables are here",
        (f"{good}:smal", good): "no tables of the model 'smal'; did you mean 'small'?",
        (good, broken): "protocol.json: a JSON object was expected",
        (torn, good): "250.json: not JSON",
        (other, good): "have no benchmark, model and setting in common",
    }.items():
        status, text, line = compare(*sides)
        assert (status, text, line.count("\n")) == (2, "", 1)
        assert said in line


def test_differences_are_those_of_the_values():
    a = {"x": {"y": [1, 2], "z": 1}, "only": None, "same": {"deep": [{"k": 1}]}}
    b = {"x": {"y": [1, 3], "z": 1.0}, "new": False, "same": {"deep": [{"k": 1}]}}
    assert list(differences(a, b)) == [
        Difference("x.y", [1, 2], [1, 3]),
        Difference("only", None, ABSENT),
        Difference("new", ABSENT, False),
    ]
    assert list(differences({"x": 1}, {"x": True})) == [Difference("x", 1, True)]


def test_the_difference_of_the_means_is_told_with_what_chance_would_do(tmp_path):
    def side(name, scores):
        results(tmp_path / name, scores=[(250, 100 * sum(scores) / len(scores))])
        path = tmp_path / name / "scores/demo/small/full/needle_en/250.json"
        write_json(path, {**read_json(path), "n": len(scores), "rows": len(scores), "n_expected": len(scores)})
        lines = ({"id": f"r{i}", "question_id": f"q{i}", "score": x, "flags": []} for i, x in enumerate(scores))
        write_jsonl(path.with_suffix(".jsonl"), lines)
        return tmp_path / name

    low = [0.2 + i / 40 for i in range(20)]
    # Each of 20 questions is a tenth better: of 2 to the 20 ways to exchange the sides only two are as far apart.
    _, text, _ = compare(side("a", low), side("b", [x + 0.1 for x in low]))
    line = next(line for line in text.splitlines() if "B - A on the cells of both" in line)
    assert "+10.00, 95 % interval " in line
    assert "p = 0.0001 (paired" in line
    _, text, _ = compare(side("c", low), side("d", [x + (0.1 if i % 2 else -0.1) for i, x in enumerate(low, 1)]))
    line = next(line for line in text.splitlines() if "B - A on the cells of both" in line)
    assert re.search(r": [+-]0\.00, 95 % interval -\d+\.\d+ to \+\d+\.\d+, p = 1\.0000", line), line
