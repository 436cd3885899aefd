# Sources -> records. Everything here runs where the workflow was started and is all that needs a network, but for the
# models: compute nodes need none.


rule fetch_lveval:
    output:
        f"{FILES.resources}/downloads/lveval/{{dataset}}.zip",
    log:
        f"{FILES.results}/logs/fetch_lveval/{{dataset}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/fetch_lveval/{{dataset}}.tsv"
    retries: 2
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=120,
    params:
        spec=lambda wildcards: canonical(
            {
                "hub": benchmarks.load("lveval").table["hub"],
                "file": f"{wildcards.dataset}.zip",
                "revision": CONFIG.options["lveval"].revision or benchmarks.load("lveval").table["revision"],
            }
        ),
    message:
        "Fetching LV-Eval's {wildcards.dataset}.zip from the hub"
    shell:
        "python -m scripts.download --spec {params.spec:q}" " --output {output:q} > {log:q} 2>&1"


rule prepare:
    input:
        record_sources,
    output:
        f"{FILES.resources}/records/{{benchmark}}/{{dataset}}/{{length}}.jsonl",
    log:
        f"{FILES.results}/logs/prepare/{{benchmark}}/{{dataset}}/{{length}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/prepare/{{benchmark}}/{{dataset}}/{{length}}.tsv"
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        spec=lambda wc: cells.records_spec(CONFIG, wc.benchmark, wc.dataset, wc.length),
    message:
        "Preparing the records of {wildcards.benchmark} {wildcards.dataset} at {wildcards.length}"
    shell:
        "python -m scripts.prepare --benchmark {wildcards.benchmark} --dataset {wildcards.dataset}"
        " --length {wildcards.length} --spec {params.spec:q} --output {output:q} --sources {input:q} > {log:q} 2>&1"


rule retrieve:
    input:
        setting_records,
    output:
        f"{FILES.resources}/retrieved/{{benchmark}}/{{setting}}/{{dataset}}/{{length}}.jsonl",
    log:
        f"{FILES.results}/logs/retrieve/{{benchmark}}/{{setting}}/{{dataset}}/{{length}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/retrieve/{{benchmark}}/{{setting}}/{{dataset}}/{{length}}.tsv"
    conda:
        "../envs/inference.yaml"
    threads: 2
    resources:
        gpu=lambda wildcards: setting_gpu(wildcards.setting),
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 120 * attempt,
    params:
        spec=lambda wildcards: cells.setting_spec(CONFIG, wildcards.setting),
    message:
        "Making the records of {wildcards.benchmark} {wildcards.dataset} at {wildcards.length} for {wildcards.setting}"
    shell:
        "python -m scripts.gpu_lease --n {resources.gpu} -- python -m scripts.retrieve --setting {wildcards.setting} --records {input:q} --spec {params.spec:q}"
        " --output {output:q} > {log:q} 2>&1"


rule fetch:
    output:
        f"{FILES.resources}/downloads/{{source}}/{{revision}}/{{file}}",
    log:
        f"{FILES.results}/logs/fetch/{{source}}/{{revision}}/{{file}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/fetch/{{source}}/{{revision}}/{{file}}.tsv"
    wildcard_constraints:
        source=one_of([name for name in benchmarks.names() if hasattr(benchmarks.load(name).module, "download")]),
        revision=r"[\w.-]+",
        file=r"[\w.-]+",
    retries: 2
    localrule: True
    conda:
        "../envs/scoring.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=120,
    params:
        spec=lambda wildcards: canonical(
            benchmarks.load(wildcards.source).module.download(wildcards.file, wildcards.revision)
        ),
    message:
        "Fetching {wildcards.file} of {wildcards.source}"
    shell:
        "python -m scripts.download --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
