# Scores -> tables, leaderboard, plots. The commands know their score files from the configuration: thousands of paths
# would not fit a command line.


rule table:
    input:
        table_scores,
    output:
        json=f"{FILES.results}/tables/{{benchmark}}/{{model}}/{{setting}}/result.json",
        csv=report(
            f"{FILES.results}/tables/{{benchmark}}/{{model}}/{{setting}}/result.csv",
            caption="../report/result.rst",
            category="Tables",
            subcategory="{benchmark}",
            labels={"table": "result", "model": "{model}", "setting": "{setting}"},
        ),
        protocol=f"{FILES.results}/tables/{{benchmark}}/{{model}}/{{setting}}/protocol.json",
    log:
        f"{FILES.results}/logs/table/{{benchmark}}/{{model}}/{{setting}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/table/{{benchmark}}/{{model}}/{{setting}}.tsv"
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        spec=lambda wc: cells.table_spec(CONFIG, wc.benchmark, wc.model, wc.setting),
    message:
        "Writing the tables of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "python -m scripts.tables {wildcards.benchmark}/{wildcards.model}/{wildcards.setting} --spec {params.spec:q}"
        " --json {output.json:q} --csv {output.csv:q} --protocol {output.protocol:q} > {log:q} 2>&1"


rule leaderboard:
    input:
        leaderboard_scores,
    output:
        long=report(
            FILES.leaderboard_long,
            caption="../report/leaderboard_long.rst",
            category="Tables",
            labels={"table": "leaderboard, long form", "model": "all", "setting": "all"},
        ),
        wide=[
            report(
                FILES.leaderboard(benchmark),
                caption="../report/leaderboard.rst",
                category="Tables",
                subcategory=benchmark,
                labels={"table": "leaderboard", "model": "all", "setting": "all"},
            )
            for benchmark in CONFIG.run.benchmarks
        ],
    log:
        f"{FILES.results}/logs/leaderboard.log",
    benchmark:
        f"{FILES.results}/benchmarks/leaderboard.tsv"
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        spec=cells.leaderboard_spec(CONFIG),
    message:
        "Writing the leaderboard"
    shell:
        "python -m scripts.leaderboard --spec {params.spec:q} --output {output.long:q}" " > {log:q} 2>&1"


rule citations:
    output:
        FILES.citations,
    log:
        f"{FILES.results}/logs/citations.log",
    benchmark:
        f"{FILES.results}/benchmarks/citations.tsv"
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        spec=cells.citations_spec(CONFIG),
    message:
        "Writing what to cite"
    shell:
        "python -m scripts.citations --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


# A rule for each benchmark, since each has figures of its own.
for benchmark in CONFIG.run.benchmarks:

    rule:
        name:
            f"plot_{benchmark}"
        input:
            functools.partial(plot_scores, benchmark=benchmark),
        output:
            svg=[
                report(
                    path,
                    caption="../report/plots.rst",
                    category="Plots",
                    subcategory=benchmark,
                    labels={"figure": os.path.basename(path).removesuffix(".svg").replace("_", " ")},
                )
                for path in FILES.plots(benchmark)
                if path.endswith(".svg")
            ],
            png=[path for path in FILES.plots(benchmark) if path.endswith(".png")],
        log:
            f"{FILES.results}/logs/plot/{benchmark}.log",
        benchmark:
            f"{FILES.results}/benchmarks/plot/{benchmark}.tsv"
        localrule: True
        conda:
            "../envs/plots.yaml"
        threads: 1
        resources:
            mem_mb=2000,
            runtime=20,
        params:
            spec=cells.plots_spec(CONFIG, benchmark),
        message:
            f"Drawing the plots of {benchmark}"
        shell:
            "python -m scripts.plots --spec {params.spec:q} --output {output.svg[0]:q} > {log:q} 2>&1"
