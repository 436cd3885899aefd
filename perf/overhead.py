"""How much of a run is not generation: 12 demo cells until their scores, in one batch, over the engine's own time.

The run is a person's: snakemake in an empty working directory, a real model, `batch: 1`. Generation is what the usage
files say the engine took for its answers; everything else (Snakemake, records, imports, loading, scoring) is overhead.

Run from the project's root: python -m perf.overhead MODEL_FOLDER [--threads N] [--keep FOLDER]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(folder, model, threads):
    """Run the demo; returns seconds from start to end, and the usage of its cells."""
    entry = {"engine": "transformers", "path": str(model), "chat": "template", "batch": 1, "threads": threads}
    config = {"run": {"benchmarks": ["demo"], "models": ["measured"]}, "models": {"measured": entry}}
    (folder / "run.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "run.json"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "--cores", "2", "scores"], cwd=folder, env=environment, capture_output=True, text=True
    )
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return seconds, [json.loads(path.read_text()) for path in (folder / "results/usage").rglob("*.json")]


def rules(folder):
    """Seconds of the jobs of each rule, from Snakemake's own benchmark files."""
    found = {}
    for path in sorted((folder / "results/benchmarks").rglob("*.tsv")):
        seconds = float(path.read_text().splitlines()[1].split("\t")[0])
        rule = path.relative_to(folder / "results/benchmarks").parts[0]
        count, total = found.get(rule, (0, 0.0))
        found[rule] = (count + 1, total + seconds)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of a model with a chat template")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="an empty folder to run in, and to look at afterwards")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        seconds, usage = run(folder, arguments.model.resolve(), arguments.threads)
        generation = sum(cell["generation_seconds"] for cell in usage)
        job = max(cell["job_seconds"] for cell in usage)
        print(f"{len(usage)} cells, {sum(cell['calls'] for cell in usage)} calls, {arguments.threads} threads")
        print(f"{seconds / generation:6.3f}x generation from start to scores (at most 1.15)")
        print(f"{job / generation:6.3f}x generation within the job that predicts")
        for rule, (count, total) in rules(folder).items():
            print(f"{total / generation:6.3f}x generation in {count} jobs of {rule}")


if __name__ == "__main__":
    main()
