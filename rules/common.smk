# What the rules share. The library decides; here is only what Snakemake needs to hear of it.

import functools
import os
import shlex
import sys

sys.path.insert(0, workflow.basedir)

from longflow import benchmarks, cells, config as configuration, jobs, preview, slurm, specs, tables
from longflow.errors import UserError
from longflow.jsonio import canonical, digest, write_text
from snakemake.exceptions import WorkflowError
from snakemake.io import IOFile
from snakemake.logging import logger
from snakemake.settings.types import DeploymentMethod

try:
    CONFIG = configuration.parse(config)
    FILES = cells.Files(CONFIG)
    CELLS = list(cells.cells(CONFIG))
    if not CELLS:
        raise UserError(
            f"run: nothing is left to do: the settings {', '.join(CONFIG.run.settings)} make no sense for the data sets "
            "chosen, or the models' predictions were made elsewhere and have the setting full alone"
        )
    IMPORTED = [name for name, model in CONFIG.models.items() if model.engine == "imported"]
    # Clients of a server that runs already need neither a device nor a compute node.
    CLIENTS = [
        name
        for name, model in CONFIG.models.items()
        if model.entry().get("api_calls") and not model.entry().get("serve")
    ]
    BATCHED = [name for name in CONFIG.run.models if CONFIG.models[name].entry().get("batch")]
    SHARDED = [name for name in CONFIG.run.models if CONFIG.models[name].entry().get("shards", 1) > 1]
    RECORDS = sorted({FILES.records(c.benchmark, c.dataset, c.length) for c in CELLS if c.model not in IMPORTED})
    MODELS = [FILES.model(model) for model in CONFIG.run.models if model not in IMPORTED]
    for (benchmark, model), missing in cells.absent(CONFIG).items():
        logger.warning(f"{model} has no predictions for {len(missing)} cells of {benchmark}: {', '.join(missing)}")
except UserError as error:
    raise WorkflowError(str(error))

TABLES = [
    FILES.table(benchmark, model, setting, name)
    for benchmark, model, setting in sorted({(c.benchmark, c.model, c.setting) for c in CELLS})
    for name in ("result.json", "result.csv", "protocol.json")
]
ANATOMIES = [FILES.anatomies(*chosen) for chosen in sorted({(c.benchmark, c.model, c.setting) for c in CELLS})]
ANALYSES = [FILES.analysis(benchmark) for benchmark in CONFIG.run.benchmarks]
PLOTS = [path for benchmark in CONFIG.run.benchmarks for path in FILES.plots(benchmark) + FILES.record_plots(benchmark)]

# The commands find the library, this interpreter and the merged configuration wherever the working directory is.
# The configuration stands here and not in the rules, since an address or a number of GPUs must not re-run anything.
MERGED = f".snakemake/longflow/{digest(CONFIG.merged)[:16]}.json"
if not os.path.exists(MERGED):
    write_text(MERGED, canonical(CONFIG.merged))
EXPORTS = {"PYTHONPATH": workflow.basedir, configuration.ENVIRONMENT: MERGED}
if DeploymentMethod.CONDA not in workflow.deployment_settings.deployment_method:
    EXPORTS["PATH"] = os.path.dirname(sys.executable)
shell.prefix(
    "set -euo pipefail; "
    + "".join(
        f"export {name}={shlex.quote(value)}" + (f"${{{{{name}:+:${name}}}}}; " if name.endswith("PATH") else "; ")
        for name, value in EXPORTS.items()
    )
)


def needs(path, spec, files):
    """The input files of the rule that makes the file at `path`, after seeing to it that Snakemake knows that file.

    Results that were moved or restored, or whose `.snakemake` is lost, may have been made with another spec than
    Snakemake believes or than it can tell. The digest beside the file knows. If it is another one, Snakemake's memory
    of the file is dropped and the file's time stamp set back, so that it counts as older than its inputs; its content
    is left alone.
    """
    if specs.is_stale(path, spec):
        workflow.persistence.cleanup_metadata(IOFile(path))
        try:
            specs.set_back(path)
        except OSError as error:
            logger.warning(f"{path} is out of date, but cannot be changed ({error.strerror})")
    else:
        specs.restore_time(path)
    return files


def one_of(names):
    """A wildcard constraint that matches these names and nothing else."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    benchmark=one_of(CONFIG.run.benchmarks),
    model=one_of(CONFIG.models),
    setting=one_of(CONFIG.run.settings),
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
    path = FILES.records(wildcards.benchmark, wildcards.dataset, wildcards.length)
    spec = cells.records_spec(CONFIG, wildcards.benchmark, wildcards.dataset, wildcards.length)
    try:
        files = benchmark.module.sources(
            benchmark.task(wildcards.dataset),
            wildcards.length,
            CONFIG.options[wildcards.benchmark],
            FILES.resources,
        )
    except UserError as error:
        raise WorkflowError(str(error))
    return needs(path, spec, files)


def model_file(wildcards):
    """The model.json that a cell's predictions need."""
    cell = cell_of(wildcards)
    return needs(FILES.predictions(cell), cells.predict_spec(CONFIG, cell), FILES.model(cell.model))


def shard_model(wildcards):
    """The model.json that a shard needs."""
    cell = cell_of(wildcards)
    path = FILES.shards(cell, int(wildcards.shards))[int(wildcards.shard)]
    return needs(path, cells.predict_spec(CONFIG, cell), FILES.model(cell.model))


def batch_specs(cells_of_batch):
    """The digests of the specs of a batch's cells."""
    return canonical({cell.name: specs.spec_digest(cells.predict_spec(CONFIG, cell)) for cell in cells_of_batch})


def batch_records(wildcards, batch):
    """The records that a batch's cells need."""
    return sorted({FILES.records_of(cell) for cell in batch})


def batch_model(wildcards, batch):
    """The model.json that a batch needs, after seeing to it that Snakemake knows which of its files are current."""
    for cell in batch:
        needs(FILES.from_batch(cell), cells.predict_spec(CONFIG, cell), [])
    return FILES.model(batch[0].model)


def batch_file(wildcards):
    """What a batch gave for a cell."""
    cell = cell_of(wildcards)
    return needs(FILES.predictions(cell), cells.predict_spec(CONFIG, cell), FILES.from_batch(cell))


def batch_sum(wildcards, attempt, batch):
    """Minutes of a batch: those of its cells, one after another."""
    return sum(cells.runtime_minutes(CONFIG, cell, attempt) for cell in batch)


def batch_most(wildcards, attempt, batch):
    """Memory of a batch in MB: that of its largest cell."""
    return max(cells.memory_mb(CONFIG, cell, attempt) for cell in batch)


def longest_level(batch):
    """The longest level of a batch, by which SLURM's partition is chosen."""
    return max((cell.length for cell in batch), key=benchmarks.length_units)


def slurm_resources(model=lambda wildcards: wildcards.model, length=lambda wildcards: wildcards.length):
    """What the jobs of a rule ask SLURM for; `model` and `length` tell a job's from its wildcards.

    A model's entry says it, else the profile's default-resources, else nothing is asked for.
    """

    def resource(name):
        site = workflow.resource_settings._parsed_default_resources.get(name)

        def value(wildcards, **more):
            entry = CONFIG.models[model(wildcards)]
            if name == "gpu_model" and not entry.gpu:
                return None
            return slurm.resources(entry, length(wildcards)).get(name) or site.evaluate(wildcards, **more).value

        return value

    return {name: resource(name) for name in slurm.RESOURCES}


def setting_gpu(setting):
    """GPUs that making the records of a setting needs."""
    return getattr(CONFIG.settings[setting], "gpu", 0)


def setting_records(wildcards):
    """The records of a data set that a setting's records are made of."""
    names = (wildcards.benchmark, wildcards.setting, wildcards.dataset, wildcards.length)
    path = f"{FILES.resources}/retrieved/{'/'.join(names)}.jsonl"
    records = FILES.records(wildcards.benchmark, wildcards.dataset, wildcards.length)
    return needs(path, cells.setting_spec(CONFIG, wildcards.setting), records)


def imported_file(wildcards):
    """The user's file of predictions for a cell."""
    cell = cell_of(wildcards)
    try:
        file = cells.imported_files(CONFIG, cell.model, cell.benchmark)[cell.dataset, cell.length]
    except (KeyError, UserError) as error:
        raise WorkflowError(f"{cell.name}: no predictions: {error}")
    return needs(FILES.predictions(cell), cells.predict_spec(CONFIG, cell), file)


def predictions_file(wildcards):
    """The predictions that a cell's scores need."""
    cell = cell_of(wildcards)
    return needs(FILES.score(cell), cells.score_spec(CONFIG, cell), FILES.predictions(cell))


def table_scores(wildcards):
    """The scores that a model's tables need."""
    chosen = (wildcards.benchmark, wildcards.model, wildcards.setting)
    scores = scores_of(benchmark=chosen[0], model=chosen[1], setting=chosen[2])
    return needs(FILES.table(*chosen, "result.json"), cells.table_spec(CONFIG, *chosen), scores)


def plot_scores(wildcards, benchmark):
    """The scores that a benchmark's plots need."""
    spec = cells.plots_spec(CONFIG, benchmark)
    return needs(FILES.plots(benchmark)[0], spec, scores_of(benchmark=benchmark))


def anatomy_inputs(wildcards):
    """What the anatomies of a model's cells are made of: predictions, scores, records, and the baseline's scores."""
    chosen = (wildcards.benchmark, wildcards.model, wildcards.setting)
    found = set()
    for cell in CELLS:
        if (cell.benchmark, cell.model, cell.setting) == chosen:
            found |= {FILES.predictions(cell), FILES.score_lines(cell)}
            if cell.model not in IMPORTED:
                found.add(FILES.records_of(cell))
            if blind := cells.without_context(CONFIG, cell):
                found.add(FILES.score_lines(blind))
    return needs(FILES.anatomies(*chosen), cells.anatomies_spec(CONFIG, *chosen), sorted(found))


def analysis_inputs(wildcards):
    """What the analysis of a benchmark is made of: scores, and where the evidence was."""
    benchmark = wildcards.benchmark
    spec = cells.analysis_spec(CONFIG, benchmark)
    files = scores_of(benchmark=benchmark) + [path for path in ANATOMIES if f"/anatomy/{benchmark}/" in path]
    return needs(FILES.analysis(benchmark), spec, files)


def provenance_tables(wildcards):
    """What has to be there before it is said how it was made."""
    return needs(FILES.provenance, cells.provenance_spec(CONFIG), TABLES)


def report_inputs(wildcards):
    """What the report is made of: tables, anatomies, analyses, and what made them."""
    files = [*TABLES, *ANATOMIES, *ANALYSES, FILES.leaderboard_long, FILES.provenance, *scores_of()]
    return needs(FILES.report, cells.report_spec(CONFIG), files)


def anatomies_of(wildcards, benchmark):
    """The anatomies that the plots of a benchmark's records need."""
    spec = cells.record_plots_spec(CONFIG, benchmark)
    files = [path for path in ANATOMIES if f"/anatomy/{benchmark}/" in path]
    return needs(FILES.record_plots(benchmark)[0], spec, files)


def leaderboard_scores(wildcards):
    """The scores that the leaderboard needs: all of them."""
    return needs(FILES.leaderboard_long, cells.leaderboard_spec(CONFIG), scores_of())


def scores_of(**chosen):
    """The score files of the cells that have these values."""
    return [FILES.score(cell) for cell in CELLS if all(getattr(cell, name) == value for name, value in chosen.items())]


def calls_of(model):
    """Calls of a server that others share too; a server that a job starts for itself is its own."""
    return CONFIG.models[model].entry().get("api_calls", 0) if model in CLIENTS else 0


def check_limits(workflow):
    """Refuse a run whose jobs need GPUs or API calls that --resources does not limit, or not to enough.

    Snakemake would start any number of jobs without a limit, and would silently give a job less than it asks for
    with too small a one. On a cluster the scheduler limits GPUs.
    """
    todo = list(workflow.dag.needrun_jobs())
    for name in ("gpu", "api_calls"):
        asked = {}
        for job in todo:
            if job.rule.name == "retrieve":
                asked[job.wildcards.setting] = setting_gpu(job.wildcards.setting) if name == "gpu" else 0
            elif job.rule.name.startswith("predict") and job.rule.name != "predictions":
                model = job.params.get("model") or job.wildcards.model
                asked[model] = CONFIG.models[model].gpu if name == "gpu" else calls_of(model)
        model, need = max(asked.items(), key=lambda item: item[1], default=(None, 0))
        limit = workflow.global_resources.get(name)
        given = limit.value if limit is not None else None
        scheduled = name == "gpu" and workflow.non_local_exec
        if need and given is None and not scheduled:
            raise WorkflowError(
                f"--resources does not say how many {name} there are, and {model} needs {need}: "
                f"add {name}=N to the one --resources option"
            )
        if need and given is not None and given < need:
            raise WorkflowError(f"--resources {name}={given}, but {model} needs {need}")


def say_failures():
    """After a run: say how many records failed, if any did."""
    ours = [FILES.score(cell) for cell in CELLS if cell.model not in IMPORTED]
    done = [path for path in ours if os.path.exists(path)]
    if said := preview.failures(tables.read_summaries(done)):
        logger.warning(said)
