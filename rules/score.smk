# Predictions -> scores.


rule score:
    input:
        predictions_file,
    output:
        score=f"{FILES.results}/scores/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.json",
        records=f"{FILES.results}/scores/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.jsonl",
    log:
        f"{FILES.results}/logs/score/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/score/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.tsv"
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=1500,
        runtime=20,
    params:
        spec=lambda wildcards: cells.score_spec(CONFIG, cell_of(wildcards)),
    message:
        "Scoring {wildcards.model} on {wildcards.benchmark} {wildcards.dataset} at {wildcards.length}"
    shell:
        "python -m scripts.score --spec {params.spec:q} --output {output.score:q} --records {output.records:q} {input:q}"
        " > {log:q} 2>&1"
