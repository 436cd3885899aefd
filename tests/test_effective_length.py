"""How far a model reads: the rule by hand, on simulated models, and on every published curve of LV-Eval."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from helpers_scores import summary
from hypothesis import given
from hypothesis import strategies as st

from longflow import published
from longflow.statistics.analysis import analyse
from longflow.statistics.clusters import CellScores
from longflow.statistics.effective_length import (
    LevelTest,
    effective_length,
    in_words,
    published_length,
    published_lengths,
)
from perf import coverage

ROOT = Path(__file__).parents[1]
LEVELS = ("16k", "32k", "64k", "128k", "256k")
HELD, LOST, UNRESOLVED = (0.01, 0.05), (-0.09, -0.02), (-0.04, 0.03)


def verdicts(*bounds):
    return [LevelTest(level, 0.0, *pair, 100, 1) for level, pair in zip(LEVELS[1:], bounds, strict=False)]


@pytest.mark.parametrize(
    ("bounds", "held_to", "lost_by", "unresolved"),
    [
        ([HELD, HELD, HELD, HELD], "256k", None, ()),
        ([HELD, LOST, LOST, LOST], "32k", "64k", ()),
        ([LOST, LOST, LOST, LOST], "16k", "32k", ()),
        ([HELD, UNRESOLVED, LOST, LOST], "32k", "128k", ("64k",)),
        ([HELD, UNRESOLVED, UNRESOLVED, UNRESOLVED], "32k", None, ("64k", "128k", "256k")),
        ([LOST, HELD, HELD, HELD], "16k", "32k", ()),  # lost is lost, whatever comes after
        ([UNRESOLVED, HELD, HELD, HELD], "16k", None, ("32k", "64k", "128k", "256k")),  # testing stopped
        ([UNRESOLVED, LOST, UNRESOLVED, LOST], "16k", "256k", ("32k", "64k", "128k")),
    ],
)
def test_held_lost_and_unresolved(bounds, held_to, lost_by, unresolved):
    found = effective_length("16k", verdicts(*bounds))
    assert (found.held_to, found.lost_by, found.unresolved) == (held_to, lost_by, unresolved)


@given(st.lists(st.sampled_from([HELD, LOST, UNRESOLVED]), min_size=1, max_size=4))
def test_levels_fall_into_held_unresolved_and_lost_in_this_order(bounds):
    tests = verdicts(*bounds)
    levels = ["16k", *(test.length for test in tests)]
    found = effective_length("16k", tests)
    held = levels.index(found.held_to)
    assert all(test.verdict == "held" for test in tests[:held])
    lost = levels.index(found.lost_by) if found.lost_by else len(levels)
    assert found.unresolved == tuple(levels[held + 1 : lost])
    assert found.lost_by is None or tests[lost - 1].verdict == "lost"


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ([HELD, HELD], "held to 64k (80,000 tokens sent), the longest level run"),
        ([HELD, LOST], "held to 32k, lost by 64k (80,000 tokens sent)"),
        ([UNRESOLVED, LOST], "held to 16k (20,000 tokens sent), unresolved at 32k, lost by 64k (80,000 tokens sent)"),
        ([UNRESOLVED, UNRESOLVED], "held to 16k (20,000 tokens sent), unresolved at 32k to 64k (80,000 tokens sent)"),
    ],
)
def test_in_words(bounds, words):
    tests = verdicts(*bounds)
    tokens = {"16k": 20_000.4, "32k": None, "64k": 80_000.0}
    assert in_words(effective_length("16k", tests), "64k", tokens) == words


# On records


def model(keeps, n=200, p=0.7, datasets=("cmrc_mixup", "loogle_SD_mixup"), setting="full", seed=0, sent=True):
    """Cells of a model that scores p at 16k and `keeps[level]` of that elsewhere, on the same questions."""
    made = []
    for index, dataset in enumerate(datasets):
        hard = np.random.default_rng([seed, index]).random(n)
        for step, (level, share) in enumerate(keeps.items()):
            scores = (hard < p * share).astype(float)
            lines = [
                {"id": f"{dataset}_{level}_{i:04d}", "question_id": f"q{i}", "score": float(s)}
                for i, s in enumerate(scores)
            ]
            tokens = {"mean": 20_000.0 * 2**step if sent else None, "max": None}
            changes = {"n": n, "n_expected": n, "setting": setting, "sent_tokens": tokens}
            made.append(CellScores(summary(dataset, level, 100 * scores.mean(), "m", **changes), lines))
    return made


def lengths(cells, **options):
    found = analyse("lveval", cells, resamples=2000, **options)
    (entry,) = [entry for entry in found["entries"] if entry["setting"] == "full"]
    return entry["effective_length"]


def test_a_model_that_keeps_its_score_and_loses_it():
    found = lengths(model({"16k": 1.0, "32k": 1.0, "64k": 0.97, "128k": 0.5, "256k": 0.2}))
    assert set(found) == {"all", "en", "zh"}
    for scope in found.values():
        assert (scope["held_to"], scope["lost_by"], scope["unresolved"]) == ("64k", "128k", [])
    assert found["all"]["words"] == "held to 64k (80,000 tokens sent), lost by 128k (160,000 tokens sent)"
    assert [test["datasets"] for test in found["all"]["tests"]] == [2] * 4
    assert [test["pairs"] for test in found["en"]["tests"]] == [200] * 4


def test_too_few_questions_leave_it_unresolved():
    found = lengths(model({"16k": 1.0, "32k": 0.85, "64k": 0.85}, n=30))["all"]
    assert (found["held_to"], found["lost_by"], found["unresolved"]) == ("16k", None, ["32k", "64k"])


def test_undefined_where_the_shortest_level_scores_nothing():
    found = lengths(model({"16k": 0.0, "32k": 0.0}))["all"]
    assert found["held_to"] is None
    assert found["words"] == "undefined: the shortest level does not clearly beat zero"


def test_undefined_where_the_model_knows_it_without_reading():
    cells = model({"16k": 1.0, "32k": 1.0})
    blind = [CellScores({**cell.summary, "setting": "blind"}, cell.lines) for cell in model({"16k": 0.99, "32k": 0.99})]
    found = lengths([*cells, *blind], no_context=["blind"])["all"]
    assert found["words"] == "undefined: the shortest level does not clearly beat the score without context (blind)"
    assert found["start"]["against"] == "blind"
    ignorant = [
        CellScores({**cell.summary, "setting": "blind"}, cell.lines) for cell in model({"16k": 0.2, "32k": 0.2})
    ]
    assert lengths([*cells, *ignorant], no_context=["blind"])["all"]["held_to"] == "32k"


def test_a_setting_without_context_has_no_length_of_its_own():
    blind = [CellScores({**c.summary, "setting": "blind"}, c.lines) for c in model({"16k": 1.0, "32k": 1.0})]
    found = analyse("lveval", blind, no_context=["blind"], resamples=500)
    assert found["entries"][0]["effective_length"] == {}
    assert found["families"] == []


def test_levels_that_ask_different_questions_are_no_curve():
    cells = model({"16k": 1.0, "32k": 1.0})
    other = [
        CellScores(
            cell.summary,
            [{**line, "question_id": line["question_id"] + cell.summary["length"]} for line in cell.lines],
        )
        for cell in cells
    ]
    found = analyse("lveval", other, resamples=500)
    assert found["entries"][0]["effective_length"]["all"]["words"] == "undefined: the levels ask different questions"
    (family,) = found["families"]
    assert family["differences"][0]["p"] is None


def test_truncation_and_reading_are_told_apart():
    """A model that answers all whose evidence it was sent, of which half was cut away at 64k."""
    cells = model({"16k": 1.0, "32k": 1.0, "64k": 1.0}, p=1.0)

    def cut(name):
        return "_64k_" in name and int(name[-4:]) % 2 == 1

    cells = [
        CellScores(cell.summary, [{**line, "score": 0.0 if cut(line["id"]) else 1.0} for line in cell.lines])
        for cell in cells
    ]
    found = lengths(cells, evidence_kept=lambda cell, record: not cut(record))["all"]
    assert (found["held_to"], found["lost_by"]) == ("32k", "64k")
    kept = found["evidence_kept"]
    assert kept["held_to"] == "64k"
    assert [test["pairs"] for test in kept["tests"]] == [400, 200]
    assert kept["not_told"] == []


def test_levels_whose_evidence_is_all_cut_are_not_told():
    cells = model({"16k": 1.0, "32k": 1.0, "64k": 1.0, "128k": 1.0})
    kept = lengths(cells, evidence_kept=lambda cell, record: "_64k_" not in record)["all"]["evidence_kept"]
    assert (kept["held_to"], kept["not_told"]) == ("32k", ["64k", "128k"])
    nothing = lengths(cells, evidence_kept=lambda cell, record: None)["all"]["evidence_kept"]
    assert nothing["words"] == "undefined: no pair of records kept its evidence"


def test_levels_beyond_the_prompt_limit_are_marked():
    cells = model({"16k": 1.0, "32k": 1.0}, sent=False)
    cut = [
        CellScores(
            {**cell.summary, "counts": {"truncated": 150 if cell.summary["length"] == "32k" else 50}}, cell.lines
        )
        for cell in cells
    ]
    found = lengths(cut)["all"]
    assert found["beyond_prompt_limit"] == ["32k"]
    assert found["words"] == "held to 32k, the longest level run"
    assert found["tokens_sent"] == {"16k": None, "32k": None}


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "p"), [([13], 0.5), ([100], 0.5), ([100, 150], 0.05)])
def test_a_level_that_keeps_exactly_the_share_is_rarely_called(sizes, p):
    held, lost = coverage.wrongly_held(sizes, p, 1000)
    assert max(held, lost) <= 0.05 + 3 * (0.05 * 0.95 / 1000) ** 0.5


# On published curves, by points only


def test_published_curves_by_hand():
    def one(*scores, n=200):
        return published_length([dict(zip(LEVELS, scores, strict=True))], [n])

    assert one(90, 89, 46, 24, 12.5).text == "32k"
    assert one(90, 89, 80, 77, 76.6).text == ">= 256k"
    assert one(90, 89, 80, 76.5, 76.6) == published_length(
        [dict(zip(LEVELS, (90, 89, 80, 76.5, 76.6), strict=True))], [200]
    )
    assert one(90, 89, 80, 76.5, 76.6).recovers  # 76.5 is 0.85 of 90 and does not hold, 76.6 would
    assert one(90, 89, 80, 76.5, 76.6).text == "64k?"
    assert one(4.99, 90, 90, 90, 90).held_to is None
    assert one(10, 8, 8, 8, 8).text == "16k?"
    assert one(10, 8, 8, 8, 8, n=100_000).text == "16k"


def published_curves():
    for entry in published.load("lveval"):
        curves = {}
        for (dataset, length), score in entry.scores.items():
            curves.setdefault(dataset, {})[length] = score
        for dataset, curve in curves.items():
            if len(curve) > 1:
                yield entry.name, dataset, [curve[level] for level in LEVELS]


def test_the_rule_survives_every_published_curve():
    curves = list(published_curves())
    assert len(curves) == 110
    assert sum(scores[0] < 5 for *_, scores in curves) == 24
    assert sum(any(b > a for a, b in itertools.pairwise(scores)) for *_, scores in curves) == 55
    found = published_lengths("lveval")
    for name, dataset, scores in curves:
        told = found[name][dataset]
        if scores[0] < 5:
            assert told.held_to is None
            continue
        held = LEVELS.index(told.held_to)
        assert all(score > 0.85 * scores[0] for score in scores[1 : held + 1])
        assert (told.lost_by is None) == (held == 4)
        if held < 4:
            assert told.lost_by == LEVELS[held + 1]
            assert scores[held + 1] <= 0.85 * scores[0]
            assert told.loss_is_clear is not None


def test_the_documentation_has_the_published_table():
    text = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    found = published_lengths("lveval")
    for name, row in found.items():
        line = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", text, re.MULTILINE)
        assert line, name
        assert [cell.strip() for cell in line[1].split("|")] == [told.text for told in row.values()]
