# Records -> predictions, several cells to a job, or several jobs to a cell. The predictions are those of single cells:
# asking for one runs the job that answers it, and the journal restores what was finished, however cells were dealt
# before. A batch gives a file for each cell, and `from_batch` takes the predictions from there or fails for one cell.


for model in BATCHED:
    for number, batch in enumerate(jobs.batches(CONFIG, model)):

        rule:
            name:
                f"predict_batch_{BATCHED.index(model)}_{number}"
            input:
                records=functools.partial(batch_records, batch=batch),
                model=functools.partial(batch_model, batch=batch),
            output:
                [FILES.from_batch(cell) for cell in batch],
            log:
                f"{FILES.results}/logs/predict_batch/{model}/{number}.log",
            benchmark:
                f"{FILES.results}/benchmarks/predict_batch/{model}/{number}.tsv"
            localrule: model in CLIENTS
            conda:
                "../envs/inference.yaml"
            threads: CONFIG.models[model].job_threads
            resources:
                **slurm_resources(lambda wildcards, name=model: name, lambda wildcards, n=longest_level(batch): n),
                gpu=CONFIG.models[model].gpu,
                api_calls=calls_of(model),
                mem_mb=functools.partial(batch_most, batch=batch),
                runtime=functools.partial(batch_sum, batch=batch),
            params:
                spec=batch_specs(batch),
                model=model,
                number=number,
            message:
                f"{model} answers {len(batch)} cells, batch {number} (progress in {{log}})"
            shell:
                "python -m scripts.gpu_lease --n {resources.gpu} -- python -m scripts.predict_batch"
                " {params.model} {params.number} --model-file {input.model:q} --threads {threads} > {log:q} 2>&1"


rule from_batch:
    input:
        batch_file,
    output:
        f"{FILES.results}/predictions/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.jsonl",
    log:
        f"{FILES.results}/logs/from_batch/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/from_batch/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.tsv"
    wildcard_constraints:
        model=one_of(BATCHED),
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=200,
        runtime=5,
    params:
        spec=lambda wildcards: cells.predict_spec(CONFIG, cell_of(wildcards)),
    message:
        "Taking {wildcards.benchmark} {wildcards.dataset} at {wildcards.length} from the batch of {wildcards.model}"
    shell:
        "python -m scripts.from_batch {input:q} --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


rule predict_shard:
    input:
        records=lambda wildcards: FILES.records_of(cell_of(wildcards)),
        model=shard_model,
    output:
        f"{FILES.results}/shards/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}/{{shard}}-{{shards}}.json",
    log:
        f"{FILES.results}/logs/predict_shard/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}/{{shard}}-{{shards}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/predict_shard/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}/{{shard}}-{{shards}}.tsv"
    wildcard_constraints:
        model=one_of(SHARDED),
        shard=r"\d+",
        shards=r"\d+",
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
        "{wildcards.model} answers part {wildcards.shard} of {wildcards.shards} of {wildcards.benchmark}"
        " {wildcards.dataset} at {wildcards.length} (progress in {log})"
    shell:
        "python -m scripts.gpu_lease --n {resources.gpu} -- python -m scripts.predict"
        " {wildcards.benchmark}/{wildcards.model}/{wildcards.setting}/{wildcards.dataset}/{wildcards.length}"
        " --records {input.records:q} --model-file {input.model:q} --spec {params.spec:q} --threads {threads}"
        " --shard {wildcards.shard}/{wildcards.shards} --output {output:q} > {log:q} 2>&1"


rule assemble:
    input:
        records=lambda wildcards: FILES.records_of(cell_of(wildcards)),
        model=model_file,
        shards=lambda wildcards: FILES.shards(cell_of(wildcards), CONFIG.models[wildcards.model].shards),
    output:
        f"{FILES.results}/predictions/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.jsonl",
    log:
        f"{FILES.results}/logs/assemble/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/assemble/{{benchmark}}/{{model}}/{{setting}}/{{dataset}}/{{length}}.tsv"
    wildcard_constraints:
        model=one_of(SHARDED),
    localrule: True
    conda:
        "../envs/inference.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=30,
    params:
        spec=lambda wildcards: cells.predict_spec(CONFIG, cell_of(wildcards)),
    message:
        "Putting the parts of {wildcards.benchmark} {wildcards.dataset} at {wildcards.length} together"
    shell:
        "python -m scripts.predict"
        " {wildcards.benchmark}/{wildcards.model}/{wildcards.setting}/{wildcards.dataset}/{wildcards.length}"
        " --records {input.records:q} --model-file {input.model:q} --spec {params.spec:q}"
        " --shards {input.shards:q} --output {output:q} > {log:q} 2>&1"
