"""longflow: long-context language models on long-context benchmarks, from records to leaderboard.

Configuration: config.yaml, with --configfile merged over it. One target per cell (benchmark x model x setting x
data set x length); `snakemake -n` is the plan. Targets to call by name: all, download, predictions, scores, tables,
plots.
"""

from snakemake.utils import min_version

min_version("9.18")  # compares inputs by checksum, which incremental runs rely on


configfile: f"{workflow.basedir}/config.yaml"


include: "rules/common.smk"
include: "rules/data.smk"
include: "rules/model.smk"
include: "rules/predict.smk"
include: "rules/batch.smk"
include: "rules/score.smk"
include: "rules/report.smk"


report: "report/workflow.rst"


localrules:
    all,
    download,
    predictions,
    scores,
    tables,
    plots,


rule all:
    default_target: True
    input:
        TABLES,
        FILES.leaderboard_long,
        FILES.citations,
        PLOTS,
        FILES.report,
    message:
        "Everything is up to date: read {FILES.report}; tables, leaderboard and plots are in {FILES.results}/"


rule download:
    input:
        RECORDS,
        MODELS,
    message:
        "All records and models are here; the rest needs no network"


rule predictions:
    input:
        [FILES.predictions(cell) for cell in CELLS],


rule scores:
    input:
        [FILES.score(cell) for cell in CELLS],


rule tables:
    input:
        TABLES,
        FILES.leaderboard_long,
        FILES.citations,


rule plots:
    input:
        PLOTS,


onstart:
    check_limits(workflow)


onsuccess:
    say_failures()
