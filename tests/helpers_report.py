"""A finished run of the demo with made-up answers: everything else is made by the library, as a workflow would."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

from longflow import anatomy, benchmarks, cells, leaderboard, provenance, score, tables
from longflow.config import parse
from longflow.jsonio import write_json, write_jsonl
from longflow.records import Prediction
from longflow.statistics.analysis import analyse, read_cells

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> & \"quoted\""
"""An answer that a careless page would run."""


def configuration(**changes):
    """Two models on four data sets at three levels, with and without context."""
    return {
        "run": {"benchmarks": ["demo"], "models": ["alpha", "beta"], "settings": ["full", "blind"]},
        "settings": {"blind": {"kind": "no_context"}},
        "benchmarks": {"demo": {"lengths": ["250", "500", "1k"], "records": 6}},
        "models": {
            "alpha": {"engine": "standin:StandIn", "chat": "template", "window": 32768, "gpu": 1},
            "beta": {"engine": "standin:StandIn", "chat": "none", "window": 4096, "max_prompt_tokens": 600},
        },
        **changes,
    }


def answer(rng, record, model, cell, blind, start):
    """A made-up prediction: models get worse with length, `beta` sooner; a few are odd on purpose.

    `start` is where the context begins in the prompt.
    """
    right = str(record.fields["answers"][0])
    length = int(cell.length.replace("k", "000"))
    chance = 0.05 if blind else {"alpha": 0.95, "beta": 0.75}.get(model, 0.6) - length / 2500
    context = record.fields["context"]
    cut = not blind and model == "beta" and length >= 500
    facts = {"prompt_tokens": 40 + len(context) // 4, "sent_tokens": 45 + len(context) // 4, "answer_tokens": 9}
    if not blind:
        facts["context_start"] = start
    if cut:
        facts |= {"kept_head": start + len(context) // 4, "kept_tail": len(context) // 4, "sent_tokens": 600}
    draw = rng.random()
    if draw < chance:
        return Prediction(f"{right}.", record, finish_reason="stop", **facts)
    if draw > 0.98:
        return Prediction("", record, error="the server did not answer in time", **facts)
    bait = (record.fields.get("confusing_facts") or ["Elsewhere."])[0]
    others = [HOSTILE, "I do not know.", bait, "这是另一个答案。", ""]
    return Prediction(str(rng.choice(others)), record, finish_reason="stop", **facts)


def made_up_run(folder: Path, raw=None):
    """Write all results of the run into a folder, which becomes the working directory. Returns the configuration."""
    os.chdir(folder)
    raw = raw or configuration()
    Path("run.yaml").write_text(json.dumps(raw), encoding="utf-8")
    config = parse(raw)
    files = cells.Files(config)
    rng = random.Random(1)
    chosen = list(cells.cells(config))
    for cell in chosen:
        _predict(rng, config, files, cell)
        score.run(
            files.predictions(cell),
            json.loads(cells.score_spec(config, cell)),
            files.score(cell),
            files.score_lines(cell),
        )
    for cell in chosen:
        blind = cells.without_context(config, cell)
        anatomy.run(
            files.predictions(cell),
            files.score_lines(cell),
            files.records(cell.benchmark, cell.dataset, cell.length),
            None if blind is None else files.score_lines(blind),
            json.loads(cells.anatomy_spec(config, cell)),
            files.anatomy(cell),
            files.anatomy_summary(cell),
        )
    summaries = tables.read_summaries([files.score(cell) for cell in chosen])
    for benchmark, model, setting in dict.fromkeys((c.benchmark, c.model, c.setting) for c in chosen):
        mine = [s for s in summaries if (s["benchmark"], s["model"], s["setting"]) == (benchmark, model, setting)]
        names = ("result.json", "result.csv", "protocol.json")
        paths = [files.table(benchmark, model, setting, name) for name in names]
        tables.write_tables(mine, benchmark, paths[0], paths[1])
        facts = {**cells.protocol(config, benchmark, model, setting), "model_identity": {"hub": f"example/{model}"}}
        write_json(paths[2], tables.protocol_json(mine, facts))
    leaderboard.write_leaderboard(summaries, files.leaderboard_long, f"{files.results}/leaderboard")
    for benchmark in config.run.benchmarks:
        scored = read_cells([files.score(cell) for cell in chosen if cell.benchmark == benchmark])
        write_json(files.analysis(benchmark), analyse(benchmark, scored, no_context=["blind"], resamples=400))
    write_json(files.provenance, provenance.collect(config, chosen, files))
    return config


def _predict(rng, config, files, cell):
    task = benchmarks.load(cell.benchmark).task(cell.dataset)
    options = config.benchmark_options(cell.benchmark)
    module = benchmarks.load(cell.benchmark).module
    sources = module.sources(task, cell.length, options, files.resources)
    records = list(module.prepare(task, cell.length, options, sources))
    path = files.records(cell.benchmark, cell.dataset, cell.length)
    if not Path(path).exists():
        write_jsonl(path, (record.to_row() for record in records))
    blind, start = cell.setting == "blind", task.prompt.index("{context}")
    rows = [answer(rng, record, cell.model, cell, blind, start) for record in records]
    write_jsonl(files.predictions(cell), (row.to_row() for row in rows))
    used = {
        "cell": cell.name,
        "records": len(rows),
        "failed": sum(row.error is not None for row in rows),
        "calls": len(rows),
        "generated_here": len(rows),
        "prompt_tokens": sum(row.prompt_tokens or 0 for row in rows),
        "cached_tokens": 0,
        "answer_tokens": sum(row.answer_tokens or 0 for row in rows),
        "cost": None,
        "generation_seconds": 12.5,
        "job_seconds": 20.0,
        "peak_rss_mb": 900,
        "peak_device_mb": 4000 if cell.model == "alpha" else None,
        "libraries": ["made-up 1.0"],
        "notes": [],
        "host": "example",
        "devices": "0",
        "finished": "2026-01-01T00:00:00+0000",
    }
    write_json(files.usage(cell), used)
