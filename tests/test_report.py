"""The report of a small made-up run: its numbers, and the page as a person meets it in a browser."""

import base64
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from helpers_report import HOSTILE, configuration, made_up_run
from hypothesis import given
from hypothesis import strategies as st

from longflow import cells, report
from longflow.config import parse
from longflow.errors import UserError
from longflow.jsonio import read_json, read_jsonl, write_json
from longflow.report import browser as browsers
from longflow.report import latex, overview, page, published_beside
from longflow.report.data import gather
from longflow.report.overview import Score
from longflow.report.protocol import badge, departures
from longflow.report.records import packed

WIDTHS = (360, 900, 1400)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The made-up run with its report: configuration and folder."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        config = made_up_run(folder)
        report.write(config, "results/report.html", stamp=False)
    return config, folder


@pytest.fixture
def run(made, monkeypatch):
    """What the report of that run is made of; its folder is the working directory."""
    monkeypatch.chdir(made[1])
    return gather(made[0]).runs[0]


@pytest.fixture
def text(made):
    """The page as it is written."""
    return (made[1] / "results/report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def chromium():
    """A headless browser; skipped where none can be had."""
    try:
        with browsers.chromium() as found:
            yield found
    except UserError as error:
        pytest.skip(f"no browser: {error}")


@pytest.fixture
def opened(chromium, made):
    """Opens the report in a window; what the browser complained of or asked for is kept and has to be nothing."""
    contexts, complaints, requests = [], [], []

    def open_page(width=1400, scheme="light", path=made[1] / "results/report.html", **options):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        contexts.append(context)
        found = context.new_page()
        found.on("console", lambda message: complaints.append(message.text))
        found.on("pageerror", lambda error: complaints.append(str(error)))
        found.on("request", lambda request: requests.append(request.url))
        found.goto(path.as_uri())
        found.locator("html[data-ready]").wait_for(timeout=30_000)
        return found

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "blob:", "data:"))] == []
    assert {url for url in requests if url.startswith("file:")} <= {(made[1] / "results/report.html").as_uri()}


@pytest.fixture(scope="session")
def axe():
    """The text of axe-core, fetched once per checkout with npm; skipped where that cannot be."""
    folder = ROOT / ".cache" / "axe"
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), "axe-core@4.14.1"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"axe-core cannot be had from npm: {error}")
    return script.read_text(encoding="utf-8")


def unpacked(text, name):
    """A packed value of the page."""
    (found,) = re.findall(rf'<script type="application/gzip" id="{name}">([A-Za-z0-9+/=]*)</script>', text)
    return json.loads(gzip.decompress(base64.b64decode(found)))


# --- what it says


def test_the_first_screen_has_the_scores_of_the_leaderboard_and_the_intervals_of_the_analysis(run, text):
    board = {(m, s): dict(zip(header, row, strict=True)) for header, row, m, s in _board()}
    told = {(e["model"], e["setting"]): e for e in read_json("results/analysis/demo.json")["entries"]}
    rows = [row for row in overview.overview(run).rows if row.first]
    assert len(rows) == 4
    for row in rows:
        means = {m["name"]: m for m in told[row.model, row.setting]["means"] if m["scope"] == "all"}
        for level in ("250", "500", "1k", "overall"):
            score = row.scores[level]
            assert f"{score.score:.2f}" == board[row.model, row.setting][level]
            assert (score.low, score.high) == (means[level]["low"], means[level]["high"])
            assert f'<span class="value">{score.score:.1f}</span>' in text
    assert [row.rank for row in rows] == sorted(row.rank for row in rows)


def _board():
    text = Path("results/leaderboard/demo.csv").read_text(encoding="utf-8")
    header, *rows = [line.split(",") for line in text.splitlines()]
    return [(header, row, row[header.index("model")], row[header.index("setting")]) for row in rows]


def test_languages_stand_apart_and_add_up(run):
    rows = overview.overview(run).rows
    for whole in (row for row in rows if row.first):
        parts = [r for r in rows if (r.model, r.setting) == (whole.model, whole.setting) and not r.first]
        assert [part.scope for part in parts] == ["English", "Chinese"]
        assert sum(part.n_expected for part in parts) == whole.n_expected == 72
        assert sum(part.failed for part in parts) == whole.failed
        by_hand = (3 * parts[0].scores["250"].score + parts[1].scores["250"].score) / 4
        assert whole.scores["250"].score == pytest.approx(by_hand, abs=0.01)


def test_evidence_that_was_cut_is_counted_from_the_rows(run):
    row = next(r for r in overview.overview(run).rows if (r.model, r.setting, r.first) == ("beta", "full", True))
    lines = [line for path in run.anatomy for line in _anatomy(path) if (path.model, path.setting) == ("beta", "full")]
    states = [line["flags"]["evidence_cut"]["state"] for line in lines]
    cut, sure = sum(s in ("yes", "partly") for s in states), sum(s != "unknown" for s in states)
    assert 0 < cut < sure
    assert row.evidence_cut == f"{100 * cut / sure:.1f} %"


def _anatomy(cell):
    return list(read_jsonl(f"results/anatomy/{cell.name}.jsonl"))


def test_levels_beyond_the_prompt_limit_are_marked(run, text):
    rows = {(r.model, r.setting): r for r in overview.overview(run).rows if r.first}
    assert [rows["beta", "full"].scores[level].beyond for level in ("250", "500", "1k")] == [False, True, True]
    assert not any(rows["alpha", "full"].scores[level].beyond for level in ("250", "500", "1k"))
    assert 'class="score beyond"' in text


@pytest.mark.parametrize(
    ("score", "spread"),
    [
        (Score(50.0, 40.0, 60.0), "±10.0"),
        (Score(50.0, 40.2, 60.0), "±9.9"),
        (Score(0.0, 0.0, 5.1), "+5.1 −0.0"),
        (Score(20.0, 8.0, 50.0), "+30.0 −12.0"),
        (Score(20.0), ""),
    ],
)
def test_an_interval_that_is_not_even_shows_both_ends(score, spread):
    assert score.spread == spread


def test_the_same_results_give_the_same_bytes(made, monkeypatch, text):
    monkeypatch.chdir(made[1])
    report.write(made[0], "again.html", stamp=False)
    assert (made[1] / "again.html").read_text(encoding="utf-8") == text
    report.write(made[0], "stamped.html")
    assert "Made by longflow" in (made[1] / "stamped.html").read_text(encoding="utf-8")


def test_the_page_asks_for_nothing_and_holds_no_data_as_markup(text):
    outside = re.sub(r'<script type="application/gzip"[^>]*>[^<]*</script>', "", text)
    addresses = re.findall(r"""(?:src|href|action|url)\s*[=(]\s*["']?([^"')\s>]+)""", outside)
    assert [each for each in addresses if not each.startswith(("#", "data:", "${"))] == []
    assert "window.hacked" not in outside
    assert not re.findall(r"\son\w+=", re.sub(r"<script.*?</script>", "", outside, flags=re.DOTALL))


def test_all_records_are_in_it(made, text):
    index = unpacked(text, "index")
    assert len(index["columns"]["score"]) == 4 * 4 * 3 * 6
    details = unpacked(text, "part-0")
    assert len(details["rows"]) == 288
    answers = {row["answer"] for row in details["rows"]}
    assert HOSTILE in answers
    scores = sorted(
        line["score"] for path in (made[1] / "results/scores").rglob("*.jsonl") for line in read_jsonl(path)
    )
    assert sorted(score / 100 for score in index["columns"]["score"]) == pytest.approx(scores, abs=1e-4)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_what_is_packed_comes_back_and_is_letters_alone(value):
    text = packed(value)
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", text)
    assert json.loads(gzip.decompress(base64.b64decode(text))) == value
    assert packed(value) == text


def test_a_larger_run_shows_whole_questions_and_says_so(made, monkeypatch):
    monkeypatch.chdir(made[1])
    report.write(made[0], "few.html", most=100, stamp=False)
    text = (made[1] / "few.html").read_text(encoding="utf-8")
    columns = unpacked(text, "index")["columns"]
    assert "One question in 3 of this run" in text
    assert 0 < len(columns["score"]) < 200
    by_question = [columns["question"].count(number) for number in set(columns["question"])]
    assert {count % 12 for count in by_question} == {0}  # whole at two models, two settings, three lengths
    assert len(by_question) < 19


def test_what_is_not_there_is_said_and_not_shown(made, tmp_path, monkeypatch):
    import shutil

    shutil.copytree(made[1] / "results", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    for folder in ("analysis", "anatomy", "usage", "tables", "predictions"):
        shutil.rmtree(tmp_path / "results" / folder)
    (tmp_path / "results/provenance.json").unlink()
    (tmp_path / "results/scores/demo/beta/full/needle_en/1k.json").unlink()
    report.write(made[0], "results/report.html")
    text = (tmp_path / "results/report.html").read_text(encoding="utf-8")
    for words in (
        "no intervals, differences and effective lengths",
        "no fate of records and evidence map",
        "no provenance",
        "1 cells missing",
        "needle_en/1k",
        "protocol not written",
        "What the predictions cost is not known",
        "No predictions are there to show",
    ):
        assert words in text
    shutil.rmtree(tmp_path / "results")
    with pytest.raises(UserError, match="no cell of this run was scored yet"):
        report.write(made[0], "results/report.html")


# --- protocol, published scores, plan


def test_departures_from_the_protocol_are_named(made):
    config = made[0]
    plain = cells.protocol(config, "demo", "alpha", "full")
    assert badge({**plain, "data": {}}) == ("reference protocol", "same")
    assert departures(plain) == ["6 records in each cell"]
    assert "prompt limit 600 tokens, chosen by hand" in departures(cells.protocol(config, "demo", "beta", "full"))
    assert "setting blind" in departures(cells.protocol(config, "demo", "alpha", "blind"))
    raw = configuration()
    raw["run"] = {**raw["run"], "limit": 2}
    raw["benchmarks"]["demo"] |= {"rouge_overflow": "exact", "prompts": {"needle_en": "{context} {input}"}}
    found = departures(cells.protocol(parse(raw), "demo", "alpha", "full"))
    assert {"first 2 records only", "own prompts: needle_en", "exact ROUGE-L of very long texts"} <= set(found)
    assert badge(None)[1] == "unknown"


def test_a_model_that_was_published_is_set_beside_that(tmp_path, monkeypatch):
    from helpers_scores import summary

    monkeypatch.chdir(tmp_path)
    raw = {
        "run": {"benchmarks": ["lveval"], "models": ["Llama2-7B-Chat-hf", "other"]},
        "benchmarks": {"lveval": {"datasets": ["hotpotwikiqa_mixup"], "lengths": ["16k", "32k"]}},
        "models": {
            name: {"engine": "standin:StandIn", "chat": "none", "window": 4096}
            for name in ("Llama2-7B-Chat-hf", "other")
        },
    }
    config = parse(raw)
    files = cells.Files(config)
    for cell in cells.cells(config):
        write_json(files.score(cell), summary(cell.dataset, cell.length, 12.0, cell.model))
    run = gather(config).runs[0]
    (same,) = published_beside.same_models(run)
    from longflow import published

    there = {m.name: m for m in published.load("lveval")}[same.published]
    assert same.model == "Llama2-7B-Chat-hf"
    assert [(row[0], row[1], row[4]) for row in same.rows] == [
        ("hotpotwikiqa_mixup", level, pytest.approx(12.0 - there.scores["hotpotwikiqa_mixup", level]))
        for level in ("16k", "32k")
    ]
    assert not same.judged
    band = [there.scores["hotpotwikiqa_mixup", "16k"] - 1, there.scores["hotpotwikiqa_mixup", "16k"] + 1]
    figures = {"score": 12.0, "low": 8.0, "high": 17.0, "method": "bca", "n_expected": 124}
    cells_told = [{"dataset": "hotpotwikiqa_mixup", "length": "16k", "rerun_band": band, **figures}]
    entry = {"model": same.model, "setting": "full", "cells": cells_told, "means": [], "effective_length": {}}
    write_json(files.analysis("lveval"), {"entries": [entry], "families": []})
    (judged,) = published_beside.same_models(gather(config).runs[0])
    assert [row[-1] is not None and row[-1].startswith("within") for row in judged.rows] == [True, False]
    board = published_beside.board(run)
    tags = {row[board.header.index("model")]: tag for row, tag in zip(board.rows, board.protocols, strict=True)}
    assert "default" in tags["GPT-4-8k"]
    assert "greedy" in tags["ChatGLM3-6B-32k"]
    report.write(config, "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "CC-BY-SA" not in text
    assert "is judged" in text


def test_the_licence_of_contexts_is_stated(tmp_path, monkeypatch):
    from helpers_scores import summary

    monkeypatch.chdir(tmp_path)
    raw = configuration()
    raw["run"] = {"benchmarks": ["lveval"], "models": ["alpha"]}
    raw["benchmarks"] = {"lveval": {"datasets": ["cmrc_mixup", "lic_mixup", "factrecall_en"], "lengths": ["16k"]}}
    config = parse(raw)
    for cell in cells.cells(config):
        write_json(cells.Files(config).score(cell), summary(cell.dataset, cell.length, 12.0, cell.model))
    (section,) = [page.section(gather(config), run) for run in gather(config).runs]
    assert dict(section.licences)["CC-BY-SA-4.0"] == "cmrc_mixup, lic_mixup"


@pytest.mark.parametrize("benchmark", ["longbench", "longbench_e", "longbench_v2"])
def test_benchmarks_without_levels_have_the_columns_of_their_own(benchmark, tmp_path, monkeypatch):
    from helpers_scores import summary

    from longflow import benchmarks

    monkeypatch.chdir(tmp_path)
    raw = configuration()
    raw["run"] = {"benchmarks": [benchmark], "models": ["alpha"]}
    raw["benchmarks"] = {}
    config = parse(raw)
    for cell in cells.cells(config):
        made = summary(cell.dataset, cell.length, 40.0, "alpha", benchmark=benchmark, n_expected=100)
        groups = getattr(benchmarks.load(benchmark).module, "GROUPS", {}).get(cell.dataset, {})
        one = {"score": 40.0, "score_expected": 40.0, "total": 4.0, "n": 10, "n_expected": 10}
        write_json(cells.Files(config).score(cell), {**made, "groups": dict.fromkeys(groups, one)})
    report.write(config, "report.html")
    found = overview.overview(gather(config).runs[0])
    wanted = {"longbench": ["English", "Chinese"], "longbench_e": ["overall"], "longbench_v2": ["overall", "hard"]}
    assert set(wanted[benchmark]) <= set(found.columns)
    assert all(score.score == pytest.approx(40.0) for score in found.rows[0].scores.values() if score)


def test_the_plan_stands_beside_what_was_spent(made, monkeypatch):
    monkeypatch.chdir(made[1])
    gathered = gather(made[0])
    figures = {"hours": {"hours": 0.5, "basis": "given"}, "memory_mb": {"kv": 100, "total": 1234}, "money": None}
    plan = {"models": {"alpha": {"cells": 24, "prompt_tokens": 120_000, **figures}}}
    from dataclasses import replace

    from longflow.report import cost

    rows = {row.what: row for row in cost.planned(replace(gathered, plan=plan))}
    assert (rows["cells"].planned, rows["cells"].spent) == ("24", "24")
    assert rows["prompt tokens"].planned == "120,000"
    assert (rows["memory (MB)"].planned, rows["memory (MB)"].spent) == ("1,234", "4,000")
    assert float(rows["hours of generation"].spent) == pytest.approx(24 * 12.5 / 3600, rel=0.05)
    assert not any(name.startswith("money") for name in rows)
    line = cost.costs(gathered, gathered.runs[0])[0].values
    assert line["GPU hours"] == pytest.approx(12 * 12.5 / 3600)


# --- papers


def test_latex_tables_hold_what_the_csv_tables_hold(made, monkeypatch):
    monkeypatch.chdir(made[1])
    written = {path.name for path in latex.write(made[0])}
    assert written == {"result.tex", "demo.tex", "demo_intervals.csv"}
    rows = (made[1] / "results/tables/demo/alpha/full/result.csv").read_text().splitlines()
    tex = (made[1] / "results/tables/demo/alpha/full/result.tex").read_text()
    for row in rows:
        assert " & ".join(latex.escape(value) for value in row.split(",")) + r" \\" in tex
    board = (made[1] / "results/leaderboard/demo.tex").read_text(encoding="utf-8")
    assert board.count(r"\\") == 1 + 12
    assert board.count("{") == board.count("}")
    assert r"{}^{\dagger}" in board


@given(st.text())
def test_escaped_text_has_no_command_but_those_of_the_escapes(text):
    left = re.sub(r"\\text\w+\{\}|\\[&%$#_{}]", "", latex.escape(text))
    assert not set(left) & set("\\&%$#_{}~^")


@pytest.mark.slow
def test_the_command_writes_it(made, tmp_path):
    command = [sys.executable, "-m", "scripts.report", "--configfile", str(made[1] / "run.yaml")]
    target = tmp_path / "report.html"
    arguments = ["--directory", str(made[1]), "--output", str(target), "--spec", "{}"]
    subprocess.run([*command, *arguments], check=True, cwd=ROOT)
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (tmp_path / "report.html.spec").is_file()


# --- in a browser


def test_an_answer_with_a_script_in_it_is_text(opened):
    found = opened()
    found.locator("#filters [name=text]").fill("window.hacked")
    found.locator("#count", has_not_text="288 of").wait_for()
    row = found.locator("#table tbody tr").first
    assert "<script>window.hacked" in row.inner_text()
    row.locator("button").click()
    assert HOSTILE in found.locator("dialog").inner_text()
    assert found.locator("dialog script, dialog img, #table script, #table img").count() == 0
    assert found.evaluate("window.hacked") is None


def test_filters_and_links_narrow_down_the_records(opened, made):
    found = opened()
    assert found.locator("#count").inner_text() == "288 of 288 records"
    found.locator("#filters [name=model]").select_option(label="beta")
    found.locator("#filters [name=length]").select_option(label="1k")
    found.locator("#count", has_text="48 of 288").wait_for()
    found.locator("#filters [name=low]").fill("50")
    rows = [line for path in (made[1] / "results/scores/demo/beta").rglob("1k.jsonl") for line in read_jsonl(path)]
    right = sum(line["score"] >= 0.5 for line in rows)
    found.locator("#count", has_text=f"{right} of 288").wait_for()
    assert {row.inner_text() for row in found.locator("#table tbody td:nth-child(5)").all()} == {"1k"}
    found.get_by_role("button", name="Show all").click()
    found.locator("#count", has_text="288 of 288").wait_for()
    link = found.locator("a[data-label=bait][data-model=beta][data-setting=full]").first
    count = link.inner_text()
    link.click()
    found.locator("#count", has_text=f"{count} of 288").wait_for()
    assert {cell.inner_text() for cell in found.locator("#table tbody td:nth-child(7)").all()} == {"took the bait"}


@pytest.mark.slow
def test_columns_sort_and_pages_turn(opened):
    found = opened()
    header = found.locator("#table thead th", has_text="score")
    header.click()
    found.locator("#table th.dt-ordering-asc", has_text="score").wait_for()
    header.click()
    found.locator("#table th.dt-ordering-desc", has_text="score").wait_for()
    assert found.locator("#table tbody tr").first.locator("td").nth(5).inner_text() == "100.0"
    found.locator(".dt-paging button.last").click()
    found.locator(".dt-info", has_text="276 to 288 of 288").wait_for()
    assert found.locator("#table tbody tr").last.locator("td").nth(5).inner_text() == "0.0"


def test_a_record_shows_its_evidence_and_the_same_question_elsewhere_by_keyboard_alone(opened):
    found = opened()
    found.locator("#filters [name=dataset]").select_option(label="singlehop_en")
    found.locator("#filters [name=model]").select_option(label="beta")
    found.locator("#filters [name=label]").select_option(label="evidence cut away")
    button = found.locator("#table tbody button").first
    found.wait_for_timeout(300)
    button.focus()
    found.keyboard.press("Enter")
    dialog = found.locator("dialog[open]")
    dialog.locator("mark").first.wait_for()
    assert "cut away before the model saw it" in dialog.inner_text()
    assert "yes: 0 of" in dialog.inner_text() or "sent whole" in dialog.inner_text()
    others = dialog.locator("tbody tr")
    assert others.count() == 12
    others.locator("button").first.click()
    dialog.locator("h3").wait_for()
    assert dialog.locator("tr[aria-current=true]").count() == 1
    found.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert found.evaluate("document.activeElement.textContent") == "Open"


@pytest.mark.slow
def test_chinese_is_marked_as_such(opened):
    found = opened()
    found.locator("#filters [name=dataset]").select_option(label="singlehop_zh")
    found.locator("#count", has_text="72 of").wait_for()
    found.locator("#table tbody button").first.click()
    assert found.locator("dialog p.text").first.get_attribute("lang") == "zh"


@pytest.mark.slow
def test_every_part_but_the_records_stands_without_scripts(chromium, made):
    context = chromium.new_context(java_script_enabled=False)
    found = context.new_page()
    found.goto((made[1] / "results/report.html").as_uri())
    for heading in ("Fate of records", "Where the evidence was", "Comparison", "Cost", "Protocol", "Provenance"):
        assert found.get_by_role("heading", name=heading, exact=True).is_visible()
    assert found.get_by_text("needs JavaScript").is_visible()
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_hangs_out_of_the_window(opened, width):
    found = opened(width)
    assert found.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(opened, axe, scheme):
    found = opened(scheme=scheme)
    assert _faults(found, axe) == []
    found.locator("#table tbody button").first.click()
    found.locator("dialog[open] h3").wait_for()
    assert _faults(found, axe) == []
    found.keyboard.press("Escape")
    found.locator("#theme").click()
    assert _faults(found, axe) == []


def _faults(found, axe):
    found.evaluate(axe)
    faults = found.evaluate("async () => (await axe.run()).violations")
    return [
        (
            fault["id"],
            fault["impact"],
            [node["html"][:150] + str(node.get("failureSummary")) for node in fault["nodes"]][:3],
        )
        for fault in faults
        if fault["impact"] in ("serious", "critical")
    ]


@pytest.mark.slow
def test_in_print_everything_is_there_but_the_records(opened, tmp_path):
    found = opened(scheme="dark")
    found.emulate_media(media="print")
    assert found.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not found.locator("#filters").is_visible()
    found.pdf(path=str(tmp_path / "report.pdf"), format="A4")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


@pytest.mark.slow
def test_twenty_thousand_records_open_and_filter_without_a_wait(chromium, tmp_path):
    """Loose bounds: the figures that count are those of perf/report.py on a quiet machine."""
    from perf.report import FILTER, page_of

    path = tmp_path / "report.html"
    path.write_text(page_of(20_000), encoding="utf-8")
    found = chromium.new_page()
    found.goto(path.as_uri())
    found.locator("html[data-ready]").wait_for(timeout=60_000)
    assert int(found.locator("html").get_attribute("data-ready")) < 10_000
    milliseconds, text = found.evaluate(FILTER, ["model", "1"])
    assert text == "5,000 of 20,000 records"
    assert milliseconds < 2_000
    found.close()


@pytest.mark.slow
def test_the_picture_of_the_readme(chromium, made, tmp_path):
    browsers_path = tmp_path / "report.png"
    command = [sys.executable, "-m", "scripts.report_picture", str(made[1] / "results/report.html")]
    subprocess.run([*command, "--output", str(browsers_path), "--width", "900"], check=True, cwd=ROOT)
    assert browsers_path.read_bytes().startswith(b"\x89PNG")
    missing = subprocess.run([*command[:-1], str(tmp_path / "none.html")], capture_output=True, text=True, cwd=ROOT)
    assert missing.returncode == 2
    assert "write it with python -m scripts.report" in missing.stderr
