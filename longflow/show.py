"""A configuration written out for a person: every default, and what follows from it."""

from __future__ import annotations

import yaml

from longflow import benchmarks
from longflow.cells import cells, expected_records
from longflow.config import Config


def show(config: Config) -> str:
    """The whole configuration as YAML, with the limits, sizes and reasons as comments at its end."""
    whole = {
        "run": config.run.model_dump(),
        "benchmarks": {name: options.model_dump() for name, options in config.options.items()},
        "settings": {name: setting.model_dump() for name, setting in config.settings.items()},
        "models": {name: model.entry() for name, model in config.models.items()},
    }
    lines = [yaml.safe_dump(whole, allow_unicode=True, sort_keys=False, width=110).rstrip(), ""]
    lines.append("# What follows from it:")
    for benchmark in config.run.benchmarks:
        lengths = config.lengths(benchmark)
        records = sum(
            expected_records(config, benchmark, dataset, length)
            for dataset in config.datasets(benchmark)
            for length in lengths
        )
        lines.append(
            f"# {benchmarks.load(benchmark).title}: {len(config.datasets(benchmark))} data sets at "
            f"{', '.join(lengths)}; {records:,} records for each model"
        )
        for model in config.run.models:
            limit, why = config.prompt_limit(model, benchmark)
            cut = f"prompts cut to {limit} tokens" if limit is not None else "prompts are not cut"
            lines.append(f"#   {model}: {cut} ({why})")
    jobs = sum(1 for _ in cells(config))
    lines.append(f"# {jobs} cells in all, settings {', '.join(config.run.settings)}")
    return "\n".join(lines) + "\n"
