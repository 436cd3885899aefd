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


rule anatomy:
    input:
        anatomy_inputs,
    output:
        f"{FILES.results}/anatomy/{{benchmark}}/{{model}}/{{setting}}.json",
    log:
        f"{FILES.results}/logs/anatomy/{{benchmark}}/{{model}}/{{setting}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/anatomy/{{benchmark}}/{{model}}/{{setting}}.tsv"
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        spec=lambda wc: cells.anatomies_spec(CONFIG, wc.benchmark, wc.model, wc.setting),
    message:
        "Telling what became of each record of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "python -m scripts.anatomy {wildcards.benchmark}/{wildcards.model}/{wildcards.setting} --spec {params.spec:q}"
        " --output {output:q} > {log:q} 2>&1"


rule analysis:
    input:
        analysis_inputs,
    output:
        f"{FILES.results}/analysis/{{benchmark}}.json",
    log:
        f"{FILES.results}/logs/analysis/{{benchmark}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/analysis/{{benchmark}}.tsv"
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=3000,
        runtime=60,
    params:
        spec=lambda wildcards: cells.analysis_spec(CONFIG, wildcards.benchmark),
    message:
        "Telling how sure the scores of {wildcards.benchmark} are"
    shell:
        "python -m scripts.analysis --benchmark {wildcards.benchmark} --spec {params.spec:q} --output {output:q}"
        " > {log:q} 2>&1"


rule provenance:
    input:
        provenance_tables,
    output:
        FILES.provenance,
    log:
        f"{FILES.results}/logs/provenance.log",
    benchmark:
        f"{FILES.results}/benchmarks/provenance.tsv"
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        spec=cells.provenance_spec(CONFIG),
    message:
        "Writing what made the results"
    shell:
        "python -m scripts.provenance --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


rule report:
    input:
        report_inputs,
    output:
        FILES.report,
    log:
        f"{FILES.results}/logs/report.log",
    benchmark:
        f"{FILES.results}/benchmarks/report.tsv"
    localrule: True
    conda:
        "../envs/plots.yaml"
    threads: 1
    resources:
        mem_mb=3000,
        runtime=30,
    params:
        spec=cells.report_spec(CONFIG),
    message:
        "Writing the report"
    shell:
        "python -m scripts.report --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


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
            pdf=[path for path in FILES.plots(benchmark) if path.endswith(".pdf")],
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

    rule:
        name:
            f"plot_records_{benchmark}"
        input:
            functools.partial(anatomies_of, benchmark=benchmark),
        output:
            svg=[
                report(
                    path,
                    caption="../report/record_plots.rst",
                    category="Plots",
                    subcategory=benchmark,
                    labels={"figure": os.path.basename(path).removesuffix(".svg").replace("_", " ")},
                )
                for path in FILES.record_plots(benchmark)
                if path.endswith(".svg")
            ],
            others=[path for path in FILES.record_plots(benchmark) if not path.endswith(".svg")],
        log:
            f"{FILES.results}/logs/plot_records/{benchmark}.log",
        benchmark:
            f"{FILES.results}/benchmarks/plot_records/{benchmark}.tsv"
        localrule: True
        conda:
            "../envs/plots.yaml"
        threads: 1
        resources:
            mem_mb=2000,
            runtime=20,
        params:
            spec=cells.record_plots_spec(CONFIG, benchmark),
        message:
            f"Drawing what became of the records of {benchmark}"
        shell:
            "python -m scripts.record_plots --spec {params.spec:q} --output {output.svg[0]:q} > {log:q} 2>&1"
