"""How long it takes to begin: the plan of 10 models on all of LV-Eval, and the help of a command.

Run from the project's root: python -m perf.startup

The plan stands beside `snakemake --version` and beside a bare workflow of as many jobs, all timed by turns in one run,
since machines are noisy.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRIES = 3

BARE = """
M = [f"m{i}" for i in range(10)]
C = [f"c{i}" for i in range(55)]
rule all:
    input: expand("s/{m}/{c}", m=M, c=C)
rule records:
    output: "r/{c}"
    shell: "true"
rule predict:
    input: "r/{c}"
    output: "p/{m}/{c}"
    shell: "true"
rule score:
    input: "p/{m}/{c}"
    output: "s/{m}/{c}"
    shell: "true"
"""


def seconds(command, folder):
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - began


def main():
    snakemake = [sys.executable, "-m", "snakemake"]
    models = {f"m{i}": {"engine": "a:B", "chat": "none", "window": 16384} for i in range(10)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = {"run": {"benchmarks": ["lveval"], "models": list(models)}, "models": models}
        (folder / "run.json").write_text(json.dumps(run))
        (folder / "bare.smk").write_text(BARE)
        commands = {
            "snakemake --version": [*snakemake, "--version"],
            "a bare workflow of 1,155 jobs, -n": [*snakemake, "-n", "--quiet", "rules", "-s", "bare.smk"],
            "10 models on LV-Eval, 1,189 jobs, -n": [
                *snakemake, "-n", "--quiet", "rules", "-s", str(ROOT / "Snakefile"), "--configfile", "run.json",
            ],
        }  # fmt: skip
        best = {label: float("inf") for label in commands}
        for _ in range(TRIES):
            for label, command in commands.items():
                best[label] = min(best[label], seconds(command, folder))
        command = [sys.executable, "-m", "scripts.score", "--help"]
        best["python -m scripts.score --help"] = min(seconds(command, ROOT) for _ in range(TRIES))
    for label, value in best.items():
        print(f"{value:6.2f} s  {label}")
    plan, bare = best["10 models on LV-Eval, 1,189 jobs, -n"], best["a bare workflow of 1,155 jobs, -n"]
    print(f"{plan / bare:6.2f}x the bare workflow")


if __name__ == "__main__":
    main()
