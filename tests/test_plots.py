"""Figures: what they show, that they can be read, and that the same scores give the same bytes."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helpers_scores
import pytest
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from longflow import benchmarks, fonts, plots, style
from longflow.figures import Settings, figures, rag_lines
from longflow.retrieval.options import RagOptions
from longflow.settings import NoContext

DATASETS = list(benchmarks.load("lveval").tasks)
LENGTHS = list(benchmarks.load("lveval").lengths)
FIGURES = figures("lveval")


def summary(dataset: str, length: str, score: float | None, model: str = "mine", truncated: int = 0) -> dict[str, Any]:
    return helpers_scores.summary(dataset, length, score, model, counts={"truncated": truncated})


def draw(
    figure: str, summaries: list[dict[str, Any]], benchmark: str = "lveval", settings: Settings | None = None
) -> Figure:
    """A figure, laid out as it is when written."""
    data = plots.gather(summaries, benchmark, settings)
    with style.look(data.texts()):
        drawn: Figure = getattr(plots, figure)(data)
        drawn.draw_without_rendering()
    return drawn


def markers(axes: Axes, colour: str) -> list[tuple[float, float, bool]]:
    """Points of this colour as (x, y, hollow)."""
    return sorted(
        (float(x), float(y), bool(same_color(line.get_markerfacecolor(), "white")))
        for line in axes.get_lines()
        if line.get_linestyle() == "None" and same_color(line.get_markeredgecolor(), colour)
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    )


def own_bars(axes: Axes) -> list[Rectangle]:
    """The bars that are not published ones."""
    grey = style.PUBLISHED_BAR["facecolor"]
    return [bar for bar in axes.patches if isinstance(bar, Rectangle) and not same_color(bar.get_facecolor(), grey)]


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    """Layouts that do not fit, glyphs that are missing: a warning of matplotlib's is a fault."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_all_figures_are_written_twice_the_same(tmp_path: Path) -> None:
    scores = [summary(d, n, 10.0 + i, m) for m in ("a", "b") for d in DATASETS[:3] for i, n in enumerate(LENGTHS[:3])]
    first = plots.plot_benchmark(scores, "lveval", tmp_path / "one")
    second = plots.plot_benchmark(scores, "lveval", tmp_path / "two")
    assert [path.name for path in first] == [f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png", "pdf")]
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == sorted(path.name for path in first)
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    for path in first[::3]:
        text = path.read_text(encoding="utf-8")
        assert "<dc:date>" not in text
        assert "LV-Eval" in text
    by_dataset = (tmp_path / "one" / "score_by_length_per_dataset.svg").read_text(encoding="utf-8")
    assert all(dataset in by_dataset for dataset in DATASETS[:3])
    assert DATASETS[4] not in by_dataset


@pytest.mark.parametrize("benchmark", benchmarks.names())
def test_every_figure_of_a_benchmark_can_be_drawn(benchmark: str) -> None:
    assert figures(benchmark)
    assert all(callable(getattr(plots, name)) for name in figures(benchmark))


def test_figures_are_told_without_matplotlib() -> None:
    code = (
        "import sys; from longflow.figures import figures; figures('longbench'); assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_person_s_own_matplotlib_settings_change_nothing(tmp_path: Path) -> None:
    import matplotlib

    scores = [summary(DATASETS[0], "16k", 10.0)]
    first = plots.plot_benchmark(scores, "lveval", tmp_path / "one")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "yellow"}):
        second = plots.plot_benchmark(scores, "lveval", tmp_path / "two")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_score_by_length_shows_means_and_hollow_markers_beyond_the_window() -> None:
    half = benchmarks.load("lveval").tasks["cmrc_mixup"].n // 2
    scores = [summary("cmrc_mixup", "16k", 40.0), summary("lic_mixup", "16k", 20.0)]
    scores += [summary("cmrc_mixup", "32k", 30.0, truncated=half), summary("lic_mixup", "32k", 10.0)]
    scores += [summary("cmrc_mixup", "64k", 8.0, truncated=200), summary("lic_mixup", "64k", 4.0, truncated=197)]
    figure = draw("score_by_length", scores)
    (axes,) = figure.axes
    assert markers(axes, style.COLOURS[0]) == [(0, 30, False), (1, 20, False), (2, 6, True)]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["16k", "32k", "64k"]
    assert axes.get_ylim()[0] == 0
    assert "over 2 of 11 data sets" in words(figure)
    # Yi-6B-200k: no level of these is beyond its window. cmrc and lic at 16k: 1.05 and 5.37.
    grey = markers(axes, style.GREY)
    assert (0.0, pytest.approx((1.05 + 5.37) / 2), False) in grey
    # ChatGLM3-6B-32k at 64k is beyond: cmrc 20.71, lic 14.33.
    assert (2.0, pytest.approx((20.71 + 14.33) / 2), True) in grey
    assert "ChatGLM3-6B-32k" in words(figure)
    assert "beyond the model's window" in words(figure)


def test_missing_scores_are_gaps_and_zeros_are_drawn() -> None:
    scores = [summary("cmrc_mixup", n, s) for n, s in zip(LENGTHS[:4], (5.0, None, 0.0, 3.0), strict=True)]
    scores += [summary("lic_mixup", n, s) for n, s in zip(LENGTHS[:4], (5.0, None, 0.0, None), strict=True)]
    figure = draw("score_by_length", scores)
    (axes,) = figure.axes
    assert [point[:2] for point in markers(axes, style.COLOURS[0])] == [(0, 5), (2, 0), (3, 3)]
    line = next(
        x for x in axes.get_lines() if x.get_linestyle() != "None" and same_color(x.get_color(), style.COLOURS[0])
    )
    assert math.isnan(line.get_ydata()[1])
    assert "mean over fewer data sets" in words(figure)  # 128k has one of the two
    bars = draw("bars_per_task_type", scores)
    assert sorted(bar.get_height() for bar in own_bars(bars.axes[0])) == [0, 0, 3, 5, 5]
    assert [t.get_text() for t in bars.axes[0].texts].count("0") == 2


def test_bars_are_hatched_beyond_the_window() -> None:
    scores = [summary("cmrc_mixup", "16k", 40.0), summary("cmrc_mixup", "32k", 20.0, truncated=101)]
    (axes,) = draw("bars_per_task_type", scores).axes
    assert [(bar.get_height(), bool(bar.get_hatch())) for bar in own_bars(axes)] == [(40, False), (20, True)]
    shades = [sum(bar.get_facecolor()[:3]) for bar in own_bars(axes)]
    assert shades[0] > shades[1]  # longer is darker
    best = [b.get_height() for b in axes.patches if same_color(b.get_facecolor(), style.PUBLISHED_BAR["facecolor"])]
    assert best == [51.21, 46.34]  # ChatGLM3-6B-32k on cmrc-mixup


def test_one_level_is_bars_best_first() -> None:
    scores = [summary("cmrc_mixup", "16k", 45.0, "second"), summary("cmrc_mixup", "16k", 99.0, "first", truncated=200)]
    figure = draw("score_by_length", scores)
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    # Published at 16k on cmrc-mixup: ChatGLM3 51.21, BlueLM 45.89.
    assert labels[:4] == ["first", "ChatGLM3-6B-32k", "BlueLM-7B-32k-Chat", "second"]
    hatched = [labels[round(b.get_y() + b.get_height() / 2)] for b in axes.patches if b.get_hatch()]
    assert hatched == ["first", "GPT-4-8k", "Qwen-7B-8k-Chat", "Llama2-7B-Chat-hf"]
    dots = draw("score_by_length_per_dataset", scores).axes[0]
    assert markers(dots, style.COLOURS[0]) == [(99, 0, True)]
    assert markers(dots, style.COLOURS[1]) == [(45, 0, False)]


def test_models_differ_in_black_and_white() -> None:
    looks = [style.line_look(i) for i in range(10)]
    assert len({look["marker"] for look in looks}) == 10
    assert len({(style.line_look(i)["marker"], style.line_look(i)["color"]) for i in range(70)}) == 70


def test_many_models_with_long_names_fit() -> None:
    names = [f"{'long-model-name-' * 3}"[:38] + f"{i:02}" for i in range(10)]
    scores = [summary(d, n, 5.0 + i, m) for i, m in enumerate(names) for d in DATASETS for n in LENGTHS]
    for name in FIGURES:
        figure = draw(name, scores)
        box = figure.get_tightbbox()
        assert box.x0 >= -0.01
        assert box.y0 >= -0.01
        assert box.x1 <= figure.get_figwidth() + 0.01
        assert box.y1 <= figure.get_figheight() + 0.01
        assert all(model in words(figure) for model in names)


@pytest.mark.parametrize("scores", [[], [summary("cmrc_mixup", "16k", None)]])
def test_without_scores_every_figure_says_so(scores: list[dict[str, Any]], tmp_path: Path) -> None:
    for name in FIGURES:
        assert plots.NO_SCORES in words(draw(name, scores))
    assert all(path.stat().st_size > 0 for path in plots.plot_benchmark(scores, "lveval", tmp_path))


def test_a_data_set_or_model_without_scores_says_so() -> None:
    scores = [summary(d, n, s) for d, s in (("cmrc_mixup", 3.0), ("lic_mixup", None)) for n in LENGTHS[:2]]
    scores += [summary("cmrc_mixup", n, None, "nothing") for n in LENGTHS[:2]]
    panels = draw("score_by_length_per_dataset", scores).axes
    assert [any(t.get_text() == plots.NO_SCORES for t in axes.texts) for axes in panels] == [False, True]
    panels = draw("bars_per_task_type", scores).axes
    assert [any(t.get_text() == plots.NO_SCORES for t in axes.texts) for axes in panels] == [False, True]


# Benchmarks that name their means


def of(benchmark: str, value: float, model: str = "mine") -> list[dict[str, Any]]:
    """Every data set of a benchmark with the same score, its groups with 1, 2, 3 ... more."""
    found = []
    for dataset, task in benchmarks.load(benchmark).tasks.items():
        sizes = dict(task.extra.get("groups", {}))
        groups = helpers_scores.groups({name: value + i + 1 for i, name in enumerate(sizes)}, sizes)
        found.append(helpers_scores.summary(dataset, "full", value, model, benchmark=benchmark, groups=groups))
    return found


def heights(axes: Axes) -> list[float]:
    return [float(bar.get_height()) for bar in own_bars(axes)]


def ticks(axes: Axes) -> list[tuple[int, float]]:
    """The ticks of published models as (place, score)."""
    lines = [
        line for line in axes.get_lines() if same_color(line.get_color(), style.GREY) and len(line.get_xdata()) == 2
    ]
    return [(round(sum(line.get_xdata()) / 2), float(line.get_ydata()[0])) for line in lines]


def test_bars_per_category_stand_beside_the_published_ones() -> None:
    scores = of("longbench", 20.0)
    for s in scores:
        if s["dataset"] in ("lcc", "repobench-p"):
            s["score_expected"] = 80.0
    english, chinese = draw("bars_per_category", scores, "longbench").axes
    labels = [label.get_text() for label in english.get_xticklabels()]
    assert labels[-1] == "average"
    assert (english.get_title(loc="left"), chinese.get_title(loc="left")) == ("English", "Chinese")
    for axes in (english, chinese):
        bars = dict(zip(labels, heights(axes), strict=True))
        assert bars.pop("average") == pytest.approx(30)  # (5 x 20 + 80) / 6
        assert bars.pop("Code Completion") == 80
        assert set(bars.values()) == {20}
    assert (6, 48.5) in ticks(english)  # ChatGLM3-6B-32k's published averages
    assert (6, 52.8) in ticks(chinese)
    assert len(ticks(english)) == 8 * 7


def test_a_language_without_any_whole_category_is_left_out() -> None:
    scores = [s for s in of("longbench", 20.0) if s["dataset"] in ("dureader", "vcsum", "narrativeqa")]
    (axes,) = draw("bars_per_category", scores, "longbench").axes
    assert axes.get_title(loc="left") == "Chinese"
    assert heights(axes) == [20, 20]
    (only,) = [s for s in scores if s["dataset"] == "narrativeqa"]
    assert plots.NO_MEANS in words(draw("bars_per_category", [only], "longbench"))


def test_longbench_e_has_a_line_over_the_buckets() -> None:
    scores = of("longbench_e", 20.0)
    scores[0]["groups"]["8k+"].update(score=None, score_expected=None, n=0)  # qasper
    figure = draw("score_by_group_per_category", scores, "longbench_e")
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes}
    assert list(panels)[-1] == "average of the categories"
    assert len(panels) == 7
    colour = style.COLOURS[0]
    assert markers(panels["Summarization"], colour) == [(0, 21, False), (1, 22, False), (2, 23, False)]
    assert markers(panels["Single-Doc QA"], colour) == [(0, 21, False), (1, 22, False)]  # a bucket lacks a data set
    assert [point[:2] for point in markers(panels["average of the categories"], colour)] == [(0, 21), (1, 22)]
    assert [t.get_text() for t in panels["Summarization"].get_xticklabels()] == ["0-4k", "4-8k", "8k+"]
    by_dataset = draw("score_by_group_per_dataset", scores, "longbench_e").axes
    assert len(by_dataset) == 13
    assert len(markers(by_dataset[0], colour)) == 2
    assert len(markers(by_dataset[1], colour)) == 3


def test_longbench_v2_has_bars_and_the_line_of_chance() -> None:
    scores = of("longbench_v2", 30.0)
    (axes,) = draw("bars_per_group", scores, "longbench_v2").axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["overall", "easy", "hard", "short", "medium", "long"]
    assert heights(axes) == [30, 31, 32, 33, 34, 35]
    assert ticks(axes) == [(0, 30.0), (1, 30.7), (2, 29.6), (3, 35.0), (4, 27.9), (5, 25.9)]
    assert [25.0, 25.0] in [list(line.get_ydata()) for line in axes.get_lines()]
    figure = draw("bars_per_domain", scores, "longbench_v2")
    assert sorted(heights(figure.axes[0])) == [36, 37, 38, 39, 40, 41]
    assert "n = 175" in words(figure)
    assert "chance: 25 %" in words(figure)


@pytest.mark.parametrize("benchmark", ["longbench", "longbench_e", "longbench_v2"])
def test_figures_of_means_are_whole_the_same_twice_and_hold_many_models(benchmark: str, tmp_path: Path) -> None:
    names = [f"{'long-model-name-' * 3}"[:38] + f"{i:02}" for i in range(10)]
    scores = [s for i, name in enumerate(names) for s in of(benchmark, 5.0 + i, name)]
    for name in figures(benchmark):
        figure = draw(name, scores, benchmark)
        box = figure.get_tightbbox()
        assert min(box.x0, box.y0) >= -0.01
        assert box.x1 <= figure.get_figwidth() + 0.01
        assert box.y1 <= figure.get_figheight() + 0.01
        assert all(model in words(figure) for model in names)
        assert plots.NO_SCORES in words(draw(name, [], benchmark))
    one = plots.plot_benchmark(scores[: len(scores) // 5], benchmark, tmp_path / "one")
    two = plots.plot_benchmark(scores[: len(scores) // 5], benchmark, tmp_path / "two")
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]


# Fonts


# Retrieval


def of_chunks(*numbers: int, **changes: Any) -> dict[str, RagOptions]:
    """Settings of one retrieval by their number of chunks."""
    given = {"kind": "rag", "retriever": "bm25_words", **changes}
    return {f"{given['retriever']}_{n}_{len(changes)}": RagOptions(**given, top_n=n) for n in numbers}


DENSE = {"retriever": "dense", "model": "encoder"}
SETTINGS = {"blind": NoContext(kind="no_context"), **of_chunks(4, 16), **of_chunks(4, 8, **DENSE)}


def test_a_figure_of_chunks_needs_settings_that_differ_in_their_number_alone() -> None:
    assert figures("longbench_v2", SETTINGS) == (*figures("longbench_v2"), "rag")
    assert figures("lveval", of_chunks(16, 4))[-1] == "rag"
    for settings in ({}, {"blind": SETTINGS["blind"]}, of_chunks(4), {**of_chunks(4), **of_chunks(8, **DENSE)}):
        assert "rag" not in figures("lveval", settings)
    assert rag_lines(SETTINGS) == {
        "bm25_words": {4: "bm25_words_4_0", 16: "bm25_words_16_0"},
        "dense": {4: "dense_4_2", 8: "dense_8_2"},
    }


def test_lines_of_chunks_are_named_by_what_tells_them_apart() -> None:
    more = of_chunks(4, chunk_size=400)
    assert list(rag_lines({**of_chunks(4, 8), **more})) == ["bm25_words, chunk_size 200", "bm25_words, chunk_size 400"]
    # Where a server is, and how many GPUs are used, makes no other line.
    one = RagOptions(kind="rag", top_n=1, base_url="http://a/v1", **DENSE)
    two = RagOptions(kind="rag", top_n=2, base_url="http://b/v1", gpu=1, **DENSE)
    assert rag_lines({"one": one, "two": two}) == {"dense": {1: "one", 2: "two"}}


def chunks_run(benchmark: str, dataset: str, length: str, scores: dict[str, float | None]) -> list[dict[str, Any]]:
    """Scores by setting."""
    return [
        helpers_scores.summary(dataset, length, score, benchmark=benchmark, setting=setting)
        for setting, score in scores.items()
    ]


def test_score_against_chunks_with_the_whole_context_and_none() -> None:
    scores: dict[str, float | None] = {"full": 50.0, "blind": 26.0, "bm25_words_4_0": 30.0, "bm25_words_16_0": 40.0}
    scores |= {"dense_4_2": 35.0, "dense_8_2": None}
    figure = draw("rag", chunks_run("longbench_v2", "longbench_v2", "full", scores), "longbench_v2", SETTINGS)
    (axes,) = figure.axes
    assert markers(axes, style.COLOURS[0]) == [(4, 30.0, False), (16, 40.0, False)]
    assert markers(axes, style.COLOURS[1]) == [(4, 35.0, False)]  # the other has no score: a gap
    across = {float(line.get_ydata()[0]) for line in axes.get_lines() if list(line.get_xdata()) == [0, 1]}
    assert across == {50.0, 26.0, 25.0}
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 50
    assert [text.get_text() for text in axes.get_xticklabels()] == ["4", "8", "16"]
    for text in ("bm25_words", "dense", "the whole context", "no context", "chance: 25 %"):
        assert text in words(figure)


def test_score_against_chunks_is_over_the_data_sets_of_retrieval_at_each_length() -> None:
    settings = of_chunks(4, 8)
    run = []
    for length, shift in (("16k", 0.0), ("32k", -5.0)):
        for dataset, score in (("cmrc_mixup", 20.0), ("lic_mixup", 40.0)):
            run += chunks_run("lveval", dataset, length, dict.fromkeys(settings, score + shift))
        full = {"cmrc_mixup": 10.0, "lic_mixup": 20.0, "dureader_mixup": 90.0}  # the last is no matter of retrieval
        for dataset, score in full.items():
            run += chunks_run("lveval", dataset, length, {"full": score})
    first, second = draw("rag", run, "lveval", settings).axes
    assert [y for _, y, _ in markers(first, style.COLOURS[0])] == [30.0, 30.0]
    assert [y for _, y, _ in markers(second, style.COLOURS[0])] == [25.0, 25.0]
    assert {float(line.get_ydata()[0]) for line in first.get_lines() if list(line.get_xdata()) == [0, 1]} == {15.0}
    assert (first.get_title(loc="left"), second.get_title(loc="left")) == ("mine · 16k", "mine · 32k")


def test_the_figure_of_chunks_is_written_with_the_others_or_says_that_there_is_nothing_yet(tmp_path: Path) -> None:
    run = chunks_run("longbench_v2", "longbench_v2", "full", dict.fromkeys(["full", *SETTINGS], 30.0))
    made = plots.plot_benchmark(run, "longbench_v2", tmp_path, SETTINGS)
    assert [path.name for path in made[-3:]] == ["rag.svg", "rag.png", "rag.pdf"]
    nothing = chunks_run("longbench_v2", "longbench_v2", "full", dict.fromkeys(["full", *SETTINGS], None))
    assert plots.NO_SCORES in words(draw("rag", nothing, "longbench_v2", SETTINGS))
    only_full = [*nothing[1:], *run[:1]]
    assert plots.NO_SCORES in words(draw("rag", only_full, "longbench_v2", SETTINGS))


def test_many_settings_of_several_models_fit() -> None:
    settings = of_chunks(1, 2, 4, 8, 16, 32, 64, 128)
    run = [
        helpers_scores.summary(dataset, length, 30.0 if dataset == "cmrc_mixup" else None, model, setting=setting)
        for model in ("a", "a-model-with-a-rather-long-name-instruct", "c")
        for setting in ("full", *settings)
        for dataset in ("cmrc_mixup", "lic_mixup")
        for length in LENGTHS[:2]
    ]
    for name in ("score_by_length_per_dataset", "rag"):
        draw(name, run, "lveval", settings)  # warnings are errors


@pytest.mark.slow
def test_the_figure_of_chunks_comes_and_goes_with_its_settings(workflow: Any) -> None:
    workflow.config["benchmarks"]["demo"] |= {"datasets": ["singlehop_en"], "lengths": ["250"]}
    workflow.config["settings"] = {"blind": {"kind": "no_context"}}
    for n in (2, 4):
        workflow.config["settings"][f"rag{n}"] = {"kind": "rag", "retriever": "bm25_words", "top_n": n}
    workflow.config["run"]["settings"] = ["full", "blind", "rag2"]
    workflow.run()
    assert not (workflow.folder / "results/plots/demo/rag.svg").exists()
    workflow.config["run"]["settings"].append("rag4")
    assert workflow.run().jobs["plot_demo"] == 1
    drawn = (workflow.folder / "results/plots/demo/rag.svg").read_text()
    assert "score by number of retrieved chunks" in drawn
    assert workflow.run("-n").jobs == {}


def test_no_font_is_looked_for_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fonts, "system_family", lambda _: pytest.fail("looked for a font"))
    assert fonts.families(["cmrc_mixup", "café · 16k"]) == ["DejaVu Sans"]


def test_chinese_names_are_drawn_with_real_glyphs(tmp_path: Path) -> None:
    name = "我的模型（长文本）"
    families = fonts.families([name, "abc"])
    if len(families) == 1:
        pytest.skip("no font with Chinese characters is installed")
    path = font_manager.findfont(font_manager.FontProperties(family=[families[1]]))
    charmap = font_manager.get_font(path).get_charmap()
    assert all(ord(char) in charmap for char in name)
    # The fixture turns matplotlib's "Glyph missing" into an error.
    scores = [summary("cmrc_mixup", n, 10.0, model=name) for n in LENGTHS[:2]]
    plots.plot_benchmark(scores, "lveval", tmp_path)
    assert name in (tmp_path / "score_by_length.svg").read_text(encoding="utf-8")


def test_the_packages_font_is_drawn_at_regular_weight() -> None:
    pytest.importorskip("manimgx_fonts_cjk")
    from fontTools.pens.areaPen import AreaPen
    from fontTools.ttLib import TTFont

    family = fonts.package_family("中文")
    path = font_manager.findfont(font_manager.FontProperties(family=[family]))
    with TTFont(path) as font:
        assert set(font.getBestCmap()) >= {ord("中"), ord("文")}
        assert "fvar" not in font  # no longer variable
        glyphs = font.getGlyphSet()
        pen = AreaPen(glyphs)
        glyphs[font.getBestCmap()[ord("中")]].draw(pen)
        ink = abs(pen.value) / font["head"].unitsPerEm ** 2
    assert ink > 0.12  # the default instance, Thin, has less than 0.05


def test_a_system_font_comes_before_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A font under a known name, as a system would have it, made from the package's."""
    family = fonts.package_family("中文")
    if family is None:
        pytest.skip("manimgx-fonts-cjk is not installed")
    from fontTools.ttLib import TTFont

    path = font_manager.findfont(font_manager.FontProperties(family=[family]))
    with TTFont(path) as font:
        for name_id in (1, 4, 6):
            font["name"].setName("SimHei", name_id, 3, 1, 0x409)
        font.save(tmp_path / "simhei.otf")
    monkeypatch.setattr(font_manager.fontManager, "ttflist", list(font_manager.fontManager.ttflist))
    font_manager.fontManager.addfont(str(tmp_path / "simhei.otf"))
    assert fonts.families(["中文"])[1] == "SimHei"
    assert fonts.families(["中文字"])[1] != "SimHei"  # it lacks the third character


def test_without_a_font_one_line_says_so_and_plots_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fonts, "SYSTEM_FAMILIES", ())
    monkeypatch.setattr(fonts, "PACKAGE", "no_such_package")
    fonts.package_family.cache_clear()
    with caplog.at_level(logging.WARNING):
        files = plots.plot_benchmark([summary("cmrc_mixup", "16k", 10.0, model="模型")], "lveval", tmp_path)
    fonts.package_family.cache_clear()
    assert len(files) == 3 * len(FIGURES)
    assert len(caplog.records) == 1
    assert "manimgx-fonts-cjk" in caplog.text
