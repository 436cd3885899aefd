# Records -> predictions. Snakemake decides that a job runs; the journal decides what of it is computed.


rule predict:
    input:
        records=lambda wildcards: FILES.records_of(cell_of(wildcards)),
        model=model_file,
    output:
        f"{FILES.results}/predictions/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.jsonl",
    log:
        f"{FILES.results}/logs/predict/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/predict/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.tsv"
    wildcard_constraints:
        model=one_of([name for name in CONFIG.models if name not in CLIENTS + IMPORTED + BATCHED + SHARDED]),
    conda:
        "../envs/inference.yaml"
    threads: lambda wildcards: CONFIG.models[wildcards.model].job_threads
    resources:
        **slurm_resources(),
        gpu=lambda wildcards: CONFIG.models[wildcards.model].gpu,
        mem_mb=lambda wildcards, attempt: cells.memory_mb(CONFIG, cell_of(wildcards), attempt),
        runtime=lambda wildcards, attempt: cells.runtime_minutes(CONFIG, cell_of(wildcards), attempt),
    params:
        spec=lambda wildcards: cells.predict_spec(CONFIG, cell_of(wildcards)),
    message:
        "{wildcards.model} answers {wildcards.benchmark} {wildcards.dataset} at {wildcards.length} (progress in {log})"
    shell:
        "python -m scripts.gpu_lease --n {resources.gpu} -- python -m scripts.predict"
        " {wildcards.benchmark}/{wildcards.model}/{wildcards.setting}/{wildcards.dataset}/{wildcards.length}"
        " --records {input.records:q} --model-file {input.model:q} --spec {params.spec:q} --threads {threads}"
        " --output {output:q} > {log:q} 2>&1"


# A client of a server needs no device and no compute node: it runs where the workflow was started.
use rule predict as predict_api with:
    wildcard_constraints:
        model=one_of([name for name in CLIENTS if name not in BATCHED + SHARDED]),
    localrule: True
    threads: 1
    resources:
        gpu=0,
        api_calls=lambda wildcards: CONFIG.models[wildcards.model].api_calls,
        mem_mb=lambda wildcards, attempt: cells.memory_mb(CONFIG, cell_of(wildcards), attempt),
        runtime=lambda wildcards, attempt: cells.runtime_minutes(CONFIG, cell_of(wildcards), attempt),


rule import_predictions:
    input:
        imported_file,
    output:
        f"{FILES.results}/predictions/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.jsonl",
    log:
        f"{FILES.results}/logs/import/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/import/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.tsv"
    wildcard_constraints:
        model=one_of(IMPORTED),
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        spec=lambda wildcards: cells.predict_spec(CONFIG, cell_of(wildcards)),
    message:
        "Taking the predictions of {wildcards.model} for {wildcards.benchmark} {wildcards.dataset} at {wildcards.length}"
    shell:
        "python -m scripts.import_predictions"
        " {wildcards.benchmark}/{wildcards.model}/{wildcards.setting}/{wildcards.dataset}/{wildcards.length}"
        " --predictions {input:q} --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
