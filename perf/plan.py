"""How near the plan comes: planned peak memory over measured, planned tokens over counted, side by side.

Memory is that of one process for each prompt length (`ru_maxrss`), float32 on the CPU. Tokens are counted here anew, by
the tokenizer and its own chat template, over the demo in both languages; at 4,000 words estimates rest on samples.

Run from the project's root: python -m perf.plan MODEL_FOLDER [--tokens N …] [--chunks N …] [--only memory|tokens]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ANSWER = 4
LENGTHS = ["250", "1000", "4000"]
ROOT = Path(__file__).resolve().parents[1]


def entry_of(model, chunk):
    """The model's entry as a run would have it."""
    from longflow import config

    given = {"engine": "transformers", "path": str(model), "chat": "template", "prefill_chunk": chunk}
    made = config.parse({"run": {"benchmarks": ["demo"], "models": ["measured"]}, "models": {"measured": given}})
    return made.runnable("measured").entry()


def answer_one(model, tokens, chunk):
    """In a process of its own: answer one prompt of so many tokens; prints the peak of its memory in bytes."""
    from longflow.engines import Generation, Request, load_engine

    entry = entry_of(model, chunk)
    engine = load_engine("transformers", {**entry, "threads": 1}, str(model))
    tokenizer = engine.tokenizer()
    text = tokenizer.decode(tokenizer.encode("The sea was calm. " * tokens, False)[:tokens])
    (done,) = engine.generate([Request("key", text, False, Generation(ANSWER), "prompt")])
    assert done.error is None, done.error
    print(json.dumps([done.prompt_tokens, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def memory(model, lengths, chunks):
    """Planned over measured peak memory."""
    from longflow.plan.memory import Way, need, shape_of

    for chunk in chunks:
        entry = entry_of(model, chunk)
        shape = shape_of(model, entry)
        for tokens in lengths:
            command = [sys.executable, "-m", "perf.plan", str(model), "--answer", str(tokens), str(chunk)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            sent, measured = json.loads(done.stdout.splitlines()[-1])
            planned = need(shape, Way.of(entry), sent, ANSWER)
            ratio = planned.total / measured
            print(f"memory  {sent:6,} tokens, prefill_chunk {chunk:5}: {ratio:5.3f} of the measured peak", flush=True)


def counted(model, dataset, length, options):
    """Tokens of the prompts of a cell, without a line of longflow's own rendering."""
    from transformers import AutoTokenizer

    from longflow import benchmarks

    tokenizer = AutoTokenizer.from_pretrained(model)
    demo = benchmarks.load("demo")
    task, total = demo.task(dataset), 0
    for record in demo.module.prepare(task, length, options, demo.module.sources(task, length, options, "")):
        message = {"role": "user", "content": task.prompt.format(**record.fields)}
        text = tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
        total += len(tokenizer(text, add_special_tokens=False)["input_ids"])
    return total


def tokens(model):
    """Planned over counted tokens, by language."""
    from longflow import config
    from longflow.plan import plan

    # A window in which no prompt is cut, since what is counted here is not.
    given = {"engine": "transformers", "path": str(model), "chat": "template", "window": 65536}
    run = {"run": {"benchmarks": ["demo"], "models": ["measured"]}, "models": {"measured": given}}
    made = config.parse({**run, "benchmarks": {"demo": {"lengths": LENGTHS}}})
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        plans = {exact: plan.make(made, plan.Options(exact=exact))["cells"] for exact in (True, False)}
    for language in ("en", "zh"):
        names = [name for name in plans[True] if f"_{language}/" in name]
        truth = sum(counted(model, *name.split("/")[-2:], made.options["demo"]) for name in names)
        for exact, by_cell in plans.items():
            planned = sum(by_cell[name]["to_prefill"] for name in names)
            stated = max(by_cell[name]["error"] for name in names)
            word = "exact" if exact else f"estimated (±{stated:.0%} stated)"
            equal = " (equal)" if planned == truth else ""
            print(f"tokens  {language}, {word}: {planned / truth:6.4f} of the counted{equal}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of a model with a chat template")
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 2048, 4096, 8176])
    parser.add_argument("--chunks", type=int, nargs="+", default=[512, 0])
    parser.add_argument("--only", choices=["memory", "tokens"])
    parser.add_argument("--answer", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    model = arguments.model.resolve()
    if arguments.answer:
        answer_one(model, *arguments.answer)
        return
    if arguments.only != "memory":
        tokens(model)
    if arguments.only != "tokens":
        memory(model, arguments.tokens, arguments.chunks)


if __name__ == "__main__":
    main()
