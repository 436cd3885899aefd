# Which model an entry means, fetched or converted if need be. The output's folder is named by the entry's digest, so
# that another model under the same name is another file.


rule model:
    input:
        lambda wildcards: cells.model_files(CONFIG, wildcards.model),
    output:
        f"{FILES.resources}/models/{{model}}/{{digest}}/model.json",
    log:
        f"{FILES.results}/logs/model/{{model}}/{{digest}}.log",
    benchmark:
        f"{FILES.results}/benchmarks/model/{{model}}/{{digest}}.tsv"
    wildcard_constraints:
        digest="[0-9a-f]{16}",
    localrule: True
    conda:
        "../envs/inference.yaml"
    threads: 1
    resources:
        mem_mb=6000,
        runtime=240,
    params:
        spec=lambda wildcards: cells.model_spec(CONFIG, wildcards.model),
    message:
        "Finding out which model {wildcards.model} is"
    shell:
        "python -m scripts.model {wildcards.model} --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
