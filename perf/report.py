"""The report's browser of records in a headless Chromium: how large the file is, how fast it opens and filters.

    python perf/report.py [--records 20000]

Records are made up: questions, answers of a few sentences and three excerpts each, at five lengths and of four models.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from longflow import config
from longflow.anatomy import FLAGS, LABELS
from longflow.cells import Cell, Files
from longflow.report.browser import chromium
from longflow.report.data import Gathered
from longflow.report.page import render
from longflow.report.records import Records

LENGTHS = ("16k", "32k", "64k", "128k", "256k")
MODELS = ("alpha", "beta", "gamma", "delta")
WORDS = ("river", "stone", "bridge", "winter", "harbour", "lantern", "maple", "copper", "orchard", "signal", "valley")
SIGNS = "山水桥灯雪风舟钟林月石城"


def prose(rng: random.Random, words: int, language: str) -> str:
    """Text without a meaning."""
    if language == "zh":
        return "".join(rng.choice(SIGNS) for _ in range(2 * words))
    return " ".join(rng.choice(WORDS) for _ in range(words))


def made_up(count: int) -> Records:
    """So many records: each question at five lengths, answered by four models."""
    rng, found = random.Random(0), Records()
    for number in range(count // (len(LENGTHS) * len(MODELS))):
        language = "zh" if number % 3 == 0 else "en"
        dataset = f"data_{language}_{number % 6}"
        question, answer = prose(rng, 18, language), prose(rng, 4, language)
        for length in LENGTHS:
            excerpts = [
                {
                    "kind": kind,
                    "start": rng.randrange(10**6),
                    "text": prose(rng, 45, language),
                    "mark": [20, 40],
                    "kept": True,
                }
                for kind in ("evidence", "evidence", "confusing")
            ]
            for model in MODELS:
                name = f"{dataset}_{length}_{number}"
                score = rng.choice([0.0, 0.0, rng.random(), 1.0])
                row: dict[str, Any] = {
                    "pred": prose(rng, 40, language),
                    "input": question,
                    "answers": [answer],
                    "gold_ans": answer[:10],
                    "prompt_tokens": rng.randrange(10**5),
                    "answer_tokens": rng.randrange(100),
                }
                fate = {
                    "id": name,
                    "label": rng.choice(list(LABELS)),
                    "flags": {
                        flag: {"state": rng.choice(["no", "yes"]), "why": "made up for measuring"} for flag in FLAGS
                    },
                    "position": {"before": rng.random(), "after": None},
                    "evidence": {"how": "spans", "why": "made up"},
                    "excerpts": excerpts,
                }
                line = {"id": name, "question_id": f"q{number}", "score": score, "plain": score}
                found.add(Cell("made_up", model, "full", dataset, length), language, row, line, fate)
    return found


def page_of(count: int) -> str:
    """A report of so many records, and nothing else."""
    settings = config.load()
    return render(Gathered(settings, Files(settings), [], None, None), [], made_up(count), stamp=False)


FILTER = """async ([name, value]) => {
  const form = document.getElementById("filters"), count = document.getElementById("count"), before = count.textContent;
  const began = performance.now();
  const shown = new Promise((done) => new MutationObserver(() => requestAnimationFrame(() => done(performance.now())))
    .observe(count, { childList: true }));
  const field = form.elements.namedItem(name);
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  return [Math.round(await shown - began), count.textContent];
}"""
"""Sets a filter and waits until the table shows what fits: milliseconds, and how many fit."""

STEPS = (("model", "1"), ("label", "3"), ("low", "20"), ("text", "bridge"), ("label", ""), ("text", ""))


def measure(path: Path) -> dict[str, Any]:
    """Milliseconds until the records can be used, and for each step of filtering, as the browser measures them."""
    with chromium() as browser:
        page = browser.new_page()
        page.goto(path.as_uri())
        opened = int(page.locator("html[data-ready]").get_attribute("data-ready", timeout=60_000) or 0)
        steps = [(f"{name} = {value or 'all'}", *page.evaluate(FILTER, [name, value])) for name, value in STEPS]
        began = time.monotonic()
        page.locator("#table tbody button").first.click()
        page.locator("dialog[open] h3").wait_for()
        return {"open": opened, "filters": steps, "record": round(1000 * (time.monotonic() - began))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        began = time.monotonic()
        path.write_text(page_of(arguments.records), encoding="utf-8")
        seconds, size = time.monotonic() - began, path.stat().st_size / 1e6
        print(f"{arguments.records} records: written in {seconds:.1f} s, {size:.1f} MB")
        found = measure(path)
    print(f"records ready {found['open']} ms after the page was opened; a record opens in {found['record']} ms")
    for step, milliseconds, text in found["filters"]:
        print(f"  {step:14} {milliseconds:5} ms  ({text})")


if __name__ == "__main__":
    main()
