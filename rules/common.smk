# What the rules share. The library decides; here is only what Snakemake needs to hear of it.

import os
import sys

sys.path.insert(0, workflow.basedir)

from longflow import benchmarks, cells, config as configuration, specs
from longflow.errors import UserError
from longflow.jsonio import canonical, digest, write_text
from snakemake.exceptions import WorkflowError

try:
    CONFIG = configuration.parse(config)
    FILES = cells.Files(CONFIG)
    CELLS = list(cells.cells(CONFIG))
    RECORDS = sorted({FILES.records(c.benchmark, c.dataset, c.length) for c in CELLS})
    MODELS = [FILES.model(model) for model in CONFIG.run.models]
except UserError as error:
    raise WorkflowError(str(error))

TABLES = [
    FILES.table(benchmark, model, setting, name)
    for benchmark, model, setting in sorted({(c.benchmark, c.model, c.setting) for c in CELLS})
    for name in ("result.json", "result.csv", "protocol.json")
]
PLOTS = [path for benchmark in CONFIG.run.benchmarks for path in FILES.plots(benchmark)]

# The commands find the library, this interpreter and the merged configuration wherever the working directory is.
# The configuration stands here and not in the rules, since an address or a number of GPUs must not re-run anything.
MERGED = f".snakemake/longflow/{digest(config)[:16]}.json"
if not os.path.exists(MERGED):
    write_text(MERGED, canonical(config))
shell.prefix(
    "set -euo pipefail; "
    f"export PYTHONPATH={workflow.basedir!r}${{{{PYTHONPATH:+:$PYTHONPATH}}}} "
    f"PATH={os.path.dirname(sys.executable)!r}:$PATH {configuration.ENVIRONMENT}={MERGED!r}; "
)

# Results made with another specification than today's are out of date even if Snakemake has forgotten how they were
# made. Nothing of them is lost: their time stamp is set back, so that they count as older than what they depend on.
for path in specs.stale(cells.stage_files(CONFIG)):
    os.utime(path, (1, 1))


def one_of(names):
    """A wildcard constraint that matches these names and nothing else."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    benchmark=one_of(CONFIG.run.benchmarks),
    model=one_of(CONFIG.models),
    setting=one_of(cells.SETTINGS),
    dataset=one_of(sorted({d for b in CONFIG.run.benchmarks for d in CONFIG.datasets(b)})),
    length=one_of(sorted({length for b in CONFIG.run.benchmarks for length in CONFIG.lengths(b)})),


def cell_of(wildcards):
    """The cell that a rule's wildcards name."""
    return cells.Cell(
        wildcards.benchmark,
        wildcards.model,
        wildcards.setting,
        wildcards.dataset,
        wildcards.length,
    )


def record_sources(wildcards):
    """The files that the records of a data set at a length are made of."""
    benchmark = benchmarks.load(wildcards.benchmark)
    try:
        return benchmark.module.sources(
            benchmark.task(wildcards.dataset),
            wildcards.length,
            CONFIG.options[wildcards.benchmark],
            FILES.resources,
        )
    except UserError as error:
        raise WorkflowError(str(error))


def scores_of(**chosen):
    """The score files of the cells that have these values."""
    return [FILES.score(cell) for cell in CELLS if all(getattr(cell, name) == value for name, value in chosen.items())]


def check_limits(workflow):
    """Refuse a local run whose jobs need GPUs or API calls that --resources does not limit, or not to enough.

    Snakemake would start any number of jobs without a limit, and would silently give a job less than it asks for
    with too small a one.
    """
    if workflow.non_local_exec:
        return
    jobs = list(workflow.dag.needrun_jobs())
    for name in ("gpu", "api_calls"):
        needs = {
            job.wildcards.model: CONFIG.models[job.wildcards.model].entry()[name]
            for job in jobs
            if job.rule.name in ("predict", "predict_api") and name in CONFIG.models[job.wildcards.model].entry()
        }
        model, need = max(needs.items(), key=lambda item: item[1], default=(None, 0))
        limit = workflow.global_resources.get(name)
        given = limit.value if limit is not None else None
        if need and given is None:
            raise WorkflowError(
                f"--resources does not say how many {name} there are, and {model} needs {need}: "
                f"add {name}=N to the one --resources option"
            )
        if need and given < need:
            raise WorkflowError(f"--resources {name}={given}, but {model} needs {need}")
