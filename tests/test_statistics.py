"""Intervals, tests and analysis: held against scipy and exact calculation, and simulated with a known truth."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers_scores import groups, summary
from hypothesis import given
from hypothesis import strategies as st

from longflow.errors import UserError
from longflow.jsonio import read_jsonl
from longflow.statistics.analysis import analyse, read_cells
from longflow.statistics.bootstrap import Stratum, intervals, telling
from longflow.statistics.clusters import CellScores, repeat_means
from longflow.statistics.exact import against_band, clopper_pearson, holm, rerun_band
from longflow.statistics.paired import flips_for, paired, sign_flip
from perf import coverage

ROOT = Path(__file__).parents[1]
ONE = np.ones((1, 1))


def stratum(values, name="s", sizes=None):
    """A stratum with a column (or several) of cluster means."""
    sums = np.asarray(values, dtype=float)
    sums = sums[:, None] if sums.ndim == 1 else sums
    sizes = np.ones_like(sums) if sizes is None else np.asarray(sizes, dtype=float).reshape(sums.shape)
    return Stratum(name, sums * sizes, sizes)


def f1_like(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.4, 0.0, rng.beta(2, 1, n))


# Against scipy, statsmodels and exact calculation


def test_bca_is_scipys_for_unclustered_scores():
    scipy_stats = pytest.importorskip("scipy.stats")
    values = f1_like(60)
    theirs = scipy_stats.bootstrap(
        (values,), np.mean, n_resamples=20000, method="BCa", rng=np.random.default_rng(1)
    ).confidence_interval
    ours = intervals([stratum(values)], [ONE], resamples=20000, method="bca", widened=False)
    width = theirs.high - theirs.low
    assert ours.estimate[0] == pytest.approx(values.mean())
    assert ours.low[0] == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high[0] == pytest.approx(theirs.high, abs=0.03 * width)


def test_bca_of_two_strata_is_scipys_of_two_samples():
    scipy_stats = pytest.importorskip("scipy.stats")
    x, y = f1_like(40, 1) ** 3, f1_like(80, 2)

    def statistic(a, b, axis):
        return 0.5 * (a.mean(axis=axis) + b.mean(axis=axis))

    theirs = scipy_stats.bootstrap(
        (x, y), statistic, n_resamples=20000, method="BCa", rng=np.random.default_rng(1)
    ).confidence_interval
    half = np.full((1, 1), 0.5)
    ours = intervals([stratum(x, "x"), stratum(y, "y")], [half, half], resamples=20000, method="bca", widened=False)
    width = theirs.high - theirs.low
    assert ours.low[0] == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high[0] == pytest.approx(theirs.high, abs=0.03 * width)


def test_widened_for_few_clusters():
    values = stratum(f1_like(12))
    plain = intervals([values], [ONE], method="bca", widened=False)
    wide = intervals([values], [ONE], method="bca")
    assert wide.low[0] < plain.low[0]
    assert wide.high[0] > plain.high[0]


@pytest.mark.parametrize("successes", [0, 1, 6, 12, 13])
def test_clopper_pearson_is_that_of_statsmodels(successes):
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    theirs = proportion.proportion_confint(successes, 13, alpha=0.05, method="beta")
    assert clopper_pearson(successes, 13) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("successes", [0, 1, 6, 12, 13])
def test_bounded_is_clopper_pearson_for_yes_or_no(successes):
    values = np.arange(13) < successes
    ours = intervals([stratum(values)], [ONE], resamples=40000, method="bounded")
    low, high = clopper_pearson(successes, 13)
    assert ours.low[0] == pytest.approx(low, abs=0.006)
    assert ours.high[0] == pytest.approx(high, abs=0.006)


def test_bounded_follows_the_quantiles_of_a_beta_mixture():
    # Gaffke's upper bound for one value x: x + (1 - x) U with U uniform, so its quantile is known.
    ours = intervals([stratum([0.4])], [ONE], resamples=40000, method="bounded")
    assert ours.low[0] == pytest.approx(0.4 * 0.025, abs=0.004)
    assert ours.high[0] == pytest.approx(0.4 + 0.6 * 0.975, abs=0.004)


def test_all_equal_scores_have_an_interval():
    zeros, ones = stratum(np.zeros(100)), stratum(np.ones(100))
    bound = 1 - 0.025 ** (1 / 100)
    nothing, everything = (intervals([s], [ONE]) for s in (zeros, ones))
    assert (nothing.low[0], nothing.high[0]) == (0, pytest.approx(bound, abs=0.003))
    assert (everything.low[0], everything.high[0]) == (pytest.approx(1 - bound, abs=0.003), 1)


def test_sign_flip_is_the_exact_test_in_the_limit():
    rng = np.random.default_rng(3)
    a, b = f1_like(10, 4), np.clip(f1_like(10, 4) - 0.25 * rng.random(10), 0, 1)
    difference = a - b
    flipped = [abs(np.dot(signs, difference)) for signs in itertools.product((-1, 1), repeat=10)]
    exact = np.mean(np.array(flipped) >= abs(difference.sum()) - 1e-12)
    contrast = np.array([[1.0], [-1.0]])
    found = sign_flip([stratum(np.column_stack([a, b]))], [contrast], 40000)
    assert found[0] == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 40000) ** 0.5 + 1 / 40000)


def test_sign_flip_agrees_with_scipy_and_never_gives_zero():
    scipy_stats = pytest.importorskip("scipy.stats")
    a, b = f1_like(50, 5), f1_like(50, 6)
    theirs = scipy_stats.permutation_test(
        (a, b),
        lambda x, y, axis: (x - y).mean(axis=axis),
        permutation_type="samples",
        n_resamples=20000,
        vectorized=True,
        rng=np.random.default_rng(0),
    ).pvalue
    contrast = np.array([[1.0], [-1.0]])
    assert sign_flip([stratum(np.column_stack([a, b]))], [contrast], 20000)[0] == pytest.approx(theirs, abs=0.015)
    apart = stratum(np.column_stack([np.ones(40), np.zeros(40)]))
    assert sign_flip([apart], [contrast], 999)[0] == 1 / 1000
    same = stratum(np.column_stack([a, a]))
    assert sign_flip([same], [contrast], 999)[0] == 1


def test_clusters_change_sign_together():
    # Four records of one question are no more evidence than one.
    a, b = np.array([1.0, 1, 1, 1, 1, 1]), np.zeros(6)
    once = stratum(np.column_stack([a, b]))
    four = stratum(np.column_stack([a, b]), sizes=np.full((6, 2), 4))
    contrast = np.array([[1.0], [-1.0]])
    assert sign_flip([once], [contrast], 4999) == sign_flip([four], [contrast], 4999)
    assert sign_flip([four], [contrast], 4999)[0] == pytest.approx(2 / 2**6, abs=0.01)


def test_holm_by_hand_and_by_statsmodels():
    # Sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1, each at least the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert len(holm([])) == 0
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(0).random(30) ** 4
    assert holm(list(p)) == pytest.approx(multitest.multipletests(p, method="holm")[1])


@pytest.mark.parametrize("tests", [1, 10, 45, 190])
def test_enough_flips_for_the_correction(tests):
    assert tests / (flips_for(tests) + 1) <= 0.005


# The re-run band


def test_rerun_band_is_a_prediction_interval():
    # mean 50, standard deviation 1, 3 runs: t(0.975, 2) = 4.30265, times sqrt(1 + 1/3), and the rounding of two digits.
    reach = 4.302653 * (4 / 3) ** 0.5 + 0.005
    assert rerun_band([49, 50, 51]) == pytest.approx((50 - reach, 50 + reach), abs=1e-5)
    assert against_band(54.9, [49, 50, 51]) == "within"
    assert against_band(55.1, [49, 50, 51]) == "outside"


def test_no_verdict_without_repeats():
    assert rerun_band([50.0]) is None
    assert rerun_band([]) is None
    assert against_band(50.0, [50.0]) is None


def test_rerun_band_wants_percentages():
    with pytest.raises(UserError, match="percent"):
        rerun_band([50.0, 101.0])


def test_rerun_band_holds_the_next_run():
    rng = np.random.default_rng(0)
    runs = rng.normal(50, 1, (4000, 4))
    inside = [against_band(run[3], list(run[:3])) == "within" for run in runs]
    assert np.mean(inside) == pytest.approx(0.95, abs=3 * (0.95 * 0.05 / 4000) ** 0.5)


# Simulation with a known truth; perf/coverage.py has more


@pytest.mark.slow
@pytest.mark.parametrize("n", [13, 100, 200])
@pytest.mark.parametrize(
    "kind",
    [
        *(coverage.yes_or_no(0.02), coverage.in_parts(0.02), coverage.in_parts(0.1), coverage.in_parts(0.5)),
        *(coverage.mostly_right(0.02), coverage.SMALL),
    ],
    ids=lambda kind: kind.name,
)
def test_intervals_cover_the_mean(kind, n):
    tally = coverage.means([(kind, n)], 1000)
    assert tally.coverage >= 0.95 - 3 * tally.error


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        [(coverage.in_parts(0.02), 13)] * 3,
        [(coverage.in_parts(p), 100) for p in (0.01, 0.1, 0.5, 0.8)],
        [(coverage.in_parts(0.5), 500)] + [(coverage.in_parts(0.01), 50)] * 3,
    ],
    ids=["few and rare", "mixed", "one rich, three poor"],
)
def test_intervals_cover_the_macro_mean(parts):
    tally = coverage.means(parts, 1000)
    assert tally.coverage >= 0.95 - 3 * tally.error


def test_plain_bootstrap_does_not_cover_rare_successes():
    """What the other rule is for."""
    tally = coverage.means([(coverage.in_parts(0.02), 13)], 500, with_plain=True)
    assert tally.plain / tally.replicates < 0.5
    assert tally.coverage >= 0.95 - 3 * tally.error


@pytest.mark.slow
@pytest.mark.parametrize("n", [13, 100])
def test_intervals_cover_with_shared_questions_and_in_pairs(n):
    for tally in (
        coverage.shared_questions(coverage.in_parts(0.5), n, 1000),
        coverage.shared_questions(coverage.in_parts(0.02), n, 1000),
        coverage.differences(n, 0.5, 1000),
        coverage.differences(n, 0.05, 1000),
    ):
        assert tally.coverage >= 0.95 - 3 * tally.error


@pytest.mark.slow
def test_the_corrected_test_keeps_its_level():
    for n, p, models in ((13, 0.5, 4), (100, 0.05, 4)):
        assert coverage.false_alarms(n, p, models, 400) <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5


@pytest.mark.slow
def test_the_test_finds_a_difference():
    rng = np.random.default_rng(0)
    found = 0
    for seed in range(50):
        both = np.hstack([side[:, :1] for side in coverage.pairs_of(rng, 200, 0.5, 0.7)])
        found += sign_flip([stratum(both)], [np.array([[1.0], [-1.0]])], 999, seed=seed)[0] <= 0.05
    assert found >= 40


def test_pairing_makes_the_interval_narrow():
    rng = np.random.default_rng(1)
    a = rng.random(100)
    b = np.clip(a - 0.1, 0, 1)
    contrast = np.array([[1.0], [-1.0]])
    together = intervals([stratum(np.column_stack([a, b]))], [contrast], method="bca")
    apart = intervals([stratum(a, "a"), stratum(b, "b")], [ONE, -ONE], method="bca")
    assert together.high[0] - together.low[0] < 0.3 * (apart.high[0] - apart.low[0])


def test_shared_questions_make_the_interval_wide():
    values = f1_like(50)
    once = intervals([stratum(values)], [ONE], method="bca")
    as_if = intervals([stratum(np.repeat(values, 4))], [ONE], method="bca")
    four = intervals([stratum(values, sizes=np.full(50, 4.0))], [ONE], method="bca")
    assert four.high[0] - four.low[0] == pytest.approx(once.high[0] - once.low[0], rel=1e-9)
    assert as_if.high[0] - as_if.low[0] < 0.6 * (four.high[0] - four.low[0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.booleans())
def test_intervals_hold_the_estimate_and_stay_in_range(values, clustered):
    sizes = np.arange(len(values)) % 3 + 1.0 if clustered else None
    found = intervals([stratum(values, sizes=sizes)], [ONE], resamples=200)
    assert -1e-9 <= found.low[0] <= found.high[0] <= 1 + 1e-9
    slack = 0.2  # 200 resamples are few
    assert found.low[0] - slack <= found.estimate[0] <= found.high[0] + slack


@given(st.integers(1, 50), st.integers(0, 50))
def test_telling_counts_rare_successes(successes, others):
    n = 50 * (successes + others + 1)
    values = np.zeros((n, 1))
    values[:successes] = 1
    assert telling(values - values.mean()) == pytest.approx(successes, rel=0.15)


# The analysis


def cell(dataset, length, scores, model="m", questions=None, **changes):
    """A cell's scores; a question for each record unless told, None for a record without an answer."""
    n = sum(score is not None for score in scores)
    questions = questions or [f"q{i}" for i in range(len(scores))]
    lines = [
        {"id": f"{dataset}_{length}_{i:04d}", "question_id": q, "score": s, "plain": s, "gated": False, "flags": []}
        for i, (q, s) in enumerate(zip(questions, scores, strict=True))
    ]
    mean = 100 * sum(s or 0 for s in scores) / max(1, changes.get("n_expected", len(scores)))
    made = summary(dataset, length, mean, model=model, **{"n_expected": len(scores), "n": n, **changes})
    return CellScores(made, lines)


def find(items, **wanted):
    (found,) = [item for item in items if all(item[key] == value for key, value in wanted.items())]
    return found


def lveval(models=("a", "b"), lengths=("16k", "32k"), datasets=("cmrc_mixup", "loogle_SD_mixup"), n=60, fade=0.1):
    made = []
    for place, (model, dataset) in enumerate(itertools.product(models, datasets)):
        rng = np.random.default_rng(place)
        for step, length in enumerate(lengths):
            scores = np.clip(rng.random(n) - fade * step, 0, 1)
            made.append(cell(dataset, length, [float(s) for s in scores], model))
    return made


def test_means_are_those_of_the_tables():
    cells = lveval()
    entry = analyse("lveval", cells)["entries"][0]
    by_cell = {(c.dataset, c.column[2]): c.summary["score"] for c in cells if c.column[0] == "a"}
    for found in entry["cells"]:
        assert found["score"] == pytest.approx(by_cell[found["dataset"], found["length"]], abs=1e-4)
        assert found["low"] < found["score"] < found["high"]
    level = find(entry["means"], name="32k", scope="all")
    assert level["score"] == pytest.approx(np.mean([v for (_, n), v in by_cell.items() if n == "32k"]), abs=1e-4)
    overall = find(entry["means"], name="overall", scope="all")
    assert overall["score"] == pytest.approx(np.mean(list(by_cell.values())), abs=1e-4)
    assert overall["n"] == 240
    assert overall["clusters"] == 120  # the questions are the same at both lengths
    assert {mean["scope"] for mean in entry["means"]} == {"all", "en", "zh"}


def test_missing_and_failed_records_count_zero():
    whole = cell("cmrc_mixup", "16k", [1.0] * 10)
    failed = cell("cmrc_mixup", "16k", [1.0] * 5 + [None] * 5)
    missing = cell("cmrc_mixup", "16k", [1.0] * 5, n_expected=10)
    for given_cells, score in (([whole], 100), ([failed], 50), ([missing], 50)):
        found = analyse("lveval", given_cells)["entries"][0]["cells"][0]
        assert found["score"] == score
        assert found["clusters"] == found["n_expected"] == 10
    low, high = clopper_pearson(5, 10)
    assert (found["low"], found["high"]) == pytest.approx((100 * low, 100 * high), abs=1e-3)
    assert found["method"] == "clopper-pearson"


def test_missing_records_pair_with_those_that_others_have():
    cells = [
        cell("cmrc_mixup", "16k", [0.5] * 20, "whole"),
        cell("cmrc_mixup", "16k", [0.5] * 15, "lost", n_expected=20),
    ]
    (family,) = analyse("lveval", cells)["families"]
    (difference,) = family["differences"]
    assert difference["paired"]
    assert difference["difference"] == -12.5  # lost minus whole, over 20 records
    assert difference["n_expected"] == 20


def test_more_rows_than_expected_are_the_denominator():
    found = analyse("lveval", [cell("cmrc_mixup", "16k", [1.0, 0.0, 1.0, 0.0], n_expected=2)])["entries"][0]["cells"][0]
    assert found["score"] == 50


def test_one_question_of_many_haystacks_says_so():
    cells = [
        cell("factrecall_en", "16k", [0.0, 1.0] * 50, questions=["one"] * 100),
        cell("cmrc_mixup", "16k", [0.5] * 60),
    ]
    entry = analyse("lveval", cells)["entries"][0]
    single = find(entry["cells"], dataset="factrecall_en")
    assert single["clusters"] == 100
    assert "haystacks only" in single["notes"][0]
    assert find(entry["cells"], dataset="cmrc_mixup")["notes"] == []
    assert "factrecall_en" in find(entry["means"], name="overall", scope="all")["notes"][0]


def test_repeats_of_a_question_are_one_cluster():
    scores = [float(s) for s in f1_like(60)]
    once = cell("cmrc_mixup", "16k", scores)
    lines = [line for line in once.lines for _ in range(5)]
    often = CellScores({**once.summary, "n": 300, "n_expected": 300}, lines)
    first, second = (analyse("lveval", [c])["entries"][0]["cells"][0] for c in (once, often))
    assert second["clusters"] == 60
    assert (first["low"], first["high"]) == pytest.approx((second["low"], second["high"]))


def test_repeats_give_a_band():
    lines = []
    for i in range(10):
        for repeat, score in enumerate((1.0, 0.5, float(i % 2))):
            lines.append({"id": f"r{i}", "question_id": f"q{i}", "score": score, "repeat": repeat})
    repeated = CellScores(summary("cmrc_mixup", "16k", 50.0, n=30, n_expected=30), lines)
    assert repeat_means(repeated) == pytest.approx([100, 50, 50])
    found = analyse("lveval", [repeated])["entries"][0]["cells"][0]
    assert found["rerun_band"] == pytest.approx(rerun_band([100, 50, 50]))
    twice = CellScores({**repeated.summary, "counts": {"duplicates": 15}}, repeated.lines)
    assert repeat_means(twice) == []


def test_documents_are_clusters_where_known():
    scores = [float(s) for s in f1_like(60)]
    plain = cell("cmrc_mixup", "16k", scores)
    lines = [{**line, "document": f"d{i // 4}"} for i, line in enumerate(plain.lines)]
    found = analyse("lveval", [CellScores(plain.summary, lines)])["entries"][0]["cells"][0]
    assert found["clusters"] == 15
    assert found["notes"] == ["clusters are documents"]


def test_differences_of_models_and_levels_are_tested_in_declared_families():
    found = analyse("lveval", lveval(models=("a", "b", "c"), lengths=("16k", "32k", "64k"), fade=0.25))
    assert [f["family"] for f in found["families"]] == [
        "models/full",
        "levels/a/full",
        "levels/b/full",
        "levels/c/full",
    ]
    models, levels = found["families"][:2]
    assert models["tests"] == 3
    assert [(d["a"], d["b"]) for d in levels["differences"]] == [("32k", "16k"), ("64k", "16k")]
    overall = {e["model"]: find(e["means"], name="overall", scope="all")["score"] for e in found["entries"]}
    for difference in models["differences"]:
        assert difference["difference"] == pytest.approx(overall[difference["a"]] - overall[difference["b"]], abs=1e-3)
        assert difference["low"] < difference["difference"] < difference["high"]
        assert difference["p"] <= difference["p_holm"]
    assert all(d["p_holm"] < 0.001 and d["high"] < 0 for d in levels["differences"])


def test_records_without_a_question_are_not_paired():
    named = cell("cmrc_mixup", "16k", [0.5, 1.0] * 20, "named")
    bare = cell("cmrc_mixup", "16k", [0.5, 0.0] * 20, "bare", questions=[None] * 40)
    (family,) = analyse("lveval", [named, bare])["families"]
    (difference,) = family["differences"]
    assert difference["difference"] == -50
    assert not difference["paired"]
    assert difference["p"] is None
    assert family["tests"] == 0


def test_settings_are_compared_with_full():
    cells = [*lveval(models=("a",)), *(CellScores({**c.summary, "setting": "rag4"}, c.lines) for c in lveval(("a",)))]
    (family,) = [f for f in analyse("lveval", cells)["families"] if f["kind"] == "settings"]
    assert [(d["a"], d["b"], d["difference"], d["p"]) for d in family["differences"]] == [("rag4", "full", 0, 1)]


def buckets(model="m"):
    """LongBench-E cells of one data set: each bucket has questions of its own."""
    sizes = {"0-4k": 100, "4-8k": 100, "8k+": 100}
    scores = {"0-4k": 0.8, "4-8k": 0.5, "8k+": 0.2}
    rng = np.random.default_rng(0)
    lines, means = [], {}
    for bucket, size in sizes.items():
        values = (rng.random(size) < scores[bucket]).astype(float)
        means[bucket] = 100 * float(values.mean())
        for value in values:
            name = f"r{len(lines)}"
            lines.append({"id": name, "question_id": name, "score": float(value), "groups": [bucket]})
    made = summary(
        "hotpotqa",
        "full",
        float(np.mean(list(means.values()))),
        model,
        benchmark="longbench_e",
        n=300,
        n_expected=300,
        groups=groups(means, sizes),
    )
    return CellScores(made, lines), means


def test_buckets_are_groups_with_intervals_and_no_curve():
    made, means = buckets()
    found = analyse("longbench_e", [made])
    (entry,) = found["entries"]
    assert {g["group"]: g["score"] for g in entry["groups"]} == pytest.approx(means)
    assert entry["effective_length"] == {}
    first = entry["groups"][0]
    low, high = clopper_pearson(round(means["0-4k"]), 100)
    assert (first["low"], first["high"]) == pytest.approx((100 * low, 100 * high), abs=1e-3)


def test_contrasts_of_groups_are_not_tested():
    rng = np.random.default_rng(0)
    sizes = {"easy": 192, "hard": 311}
    lines = [
        {
            "id": f"r{i}",
            "question_id": f"r{i}",
            "score": float(rng.random() < 0.4),
            "groups": ["easy" if i < 192 else "hard"],
        }
        for i in range(503)
    ]
    means = {
        "easy": 100 * np.mean([r["score"] for r in lines[:192]]),
        "hard": 100 * np.mean([r["score"] for r in lines[192:]]),
    }
    made = summary(
        "longbench_v2", "full", 40.0, benchmark="longbench_v2", n=503, n_expected=503, groups=groups(means, sizes)
    )
    found = analyse("longbench_v2", [CellScores(made, lines)])
    (family,) = [f for f in found["families"] if f["kind"] == "groups"]
    (difference,) = family["differences"]
    assert (difference["a"], difference["b"], difference["paired"], difference["p"]) == ("hard", "easy", False, None)
    assert difference["difference"] == pytest.approx(means["hard"] - means["easy"], abs=1e-3)
    # Two independent shares: the textbook's interval of their difference, within a tenth of its width.
    p, q = means["easy"] / 100, means["hard"] / 100
    reach = 196 * (p * (1 - p) / 192 + q * (1 - q) / 311) ** 0.5
    assert difference["high"] - difference["low"] == pytest.approx(2 * reach, rel=0.1)


def test_the_same_input_gives_the_same_bytes_in_any_order():
    cells = lveval()
    first = json.dumps(analyse("lveval", cells, resamples=500), allow_nan=False)
    assert json.dumps(analyse("lveval", cells, resamples=500)) == first
    assert json.dumps(analyse("lveval", cells[::-1], resamples=500)) == first


def test_another_model_changes_no_interval():
    cells = lveval(models=("a", "b"))
    alone = analyse("lveval", [c for c in cells if c.column[0] == "a"])["entries"][0]
    assert analyse("lveval", cells)["entries"][0] == alone


@pytest.mark.parametrize("line", [{"id": "x", "score": 1.5}, {"score": 0.5}, {"id": "x", "score": True}, {"id": "x"}])
def test_malformed_score_lines_are_named(line):
    broken = CellScores(summary("cmrc_mixup", "16k", 50.0, n=1, n_expected=1), [line])
    with pytest.raises(UserError, match="lveval/mine/full/cmrc_mixup/16k, line 1"):
        analyse("lveval", [broken])


def test_nothing_to_analyse_is_an_error():
    with pytest.raises(UserError, match="nothing to analyse"):
        analyse("lveval", [])


def test_paired_wants_every_cluster_on_both_sides():
    contrast = np.array([[1.0], [-1.0]])
    both = Stratum("s", np.zeros((3, 2)), np.array([[1.0, 1], [2, 1], [1, 1]]))
    one = Stratum("s", np.zeros((3, 2)), np.array([[1.0, 1], [1, 0], [1, 1]]))
    assert paired([both], [contrast])[0]
    assert not paired([one], [contrast])[0]


def test_real_predictions(shared, tmp_path):
    """Twelve runs of LV-Eval predictions that other people made, scored and analysed."""
    from longflow import score

    folder = shared / "cases" / "lveval" / "variants"
    paths, means = [], {}
    for run in sorted(path for path in folder.iterdir() if path.is_dir())[:4]:
        spec = {
            **{"benchmark": "lveval", "model": run.name, "setting": "full", "dataset": "hotpotwikiqa_mixup"},
            **{"length": "16k", "metric": "qa_f1_score_with_gold_ans", "language": "en", "category": "QA"},
            "n_expected": sum(1 for _ in read_jsonl(run / "hotpotwikiqa_mixup_16k.jsonl")),
        }
        paths.append(tmp_path / f"{run.name}.json")
        found = score.run(run / "hotpotwikiqa_mixup_16k.jsonl", spec, paths[-1], paths[-1].with_suffix(".jsonl"))
        means[run.name] = found["score"]
    analysis = analyse("lveval", read_cells(paths), resamples=1000)
    for entry in analysis["entries"]:
        (only,) = entry["cells"]
        assert only["score"] == pytest.approx(means[entry["model"]], abs=0.005)
        assert only["low"] < only["score"] < only["high"]
    assert find(analysis["families"], family="models/full")["tests"] == 6


def test_the_command_reads_the_cells_of_a_run(tmp_path):
    from longflow import cells, config
    from longflow.jsonio import read_json, write_json, write_jsonl
    from longflow.specs import is_stale

    run = config.load([ROOT / "config.yaml"])
    rng = np.random.default_rng(0)
    for place in cells.cells(run):
        made = cell(place.dataset, place.length, [float(s) for s in rng.random(12)], place.model, benchmark="demo")
        path = tmp_path / cells.Files(run).score(place)
        write_json(path, made.summary)
        write_jsonl(path.with_suffix(".jsonl"), made.lines)
        kept = [{"id": line["id"], "flags": {"evidence_cut": {"state": "no"}}} for line in made.lines]
        write_jsonl(tmp_path / cells.Files(run).anatomy(place), kept)
    output = tmp_path / "analysis" / "demo.json"
    command = [sys.executable, "-m", "scripts.analysis", "--spec", '{"a": 1}', "--benchmark", "demo"]
    command += ["--output", str(output), "--configfile", str(ROOT / "config.yaml"), "--directory", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = read_json(output)
    assert found["benchmark"] == "demo"
    assert len(found["entries"][0]["cells"]) == sum(1 for _ in cells.cells(run))
    told = found["entries"][0]["effective_length"]["all"]
    assert told["words"].startswith("held to")
    assert told["evidence_kept"]["words"].startswith("held to")
    assert not is_stale(output, '{"a": 1}')
    assert is_stale(output, '{"a": 2}')
    path.unlink()
    missing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert missing.returncode == 2
    assert path.name in missing.stderr
    assert missing.stderr.count("\n") == 1
