"""How much faster the transformers engine answers than the reference loop, and whether it says the same.

The reference loop is that of LV-Eval and LongBench: tokenise, `generate` with batch size 1, decode. Both sides answer
the same prompts in this one process, document by document in turns, so that a noisy machine disturbs both. Prompts are
made up here. With the defaults it takes about ten minutes on two quiet cores.

Run from the project's root: python -m perf.engine MODEL_FOLDER [--prompts N] [--case NAME …]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from typing import Any

import torch

from longflow.engines import Generation, Request, load_engine
from perf import made_up

LOOKUP = {"float32": 2, "bfloat16": 4}
"""Guesses that pay: on a CPU a float32 pass over three tokens costs 1.25 of one, over five 1.85; in bfloat16 less."""

CASES = ("unshared", "shared", "shared-bf16", "needle")


@dataclass
class Sums:
    """Times of both sides and the texts that differ."""

    reference: float = 0.0
    engine: float = 0.0
    prompts: int = 0
    different: list[tuple[str, str]] = field(default_factory=list)


def reference_texts(model: Any, tokenizer: Any, prompts: list[str], max_new_tokens: int) -> list[str]:
    """The reference loop on ready prompts."""
    texts = []
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)[0]
        texts.append(tokenizer.decode(output[inputs.input_ids.shape[-1] :], skip_special_tokens=True))
    return texts


def engine_texts(engine: Any, prompts: list[str], max_new_tokens: int) -> list[str]:
    """The engine on the same prompts; answers come in any order."""
    generation = Generation(max_new_tokens)
    requests = [Request(str(i), prompt, False, generation, f"prompt {i}") for i, prompt in enumerate(prompts)]
    found = {completion.key: completion for completion in engine.generate(requests)}
    for completion in found.values():
        if completion.error is not None:
            raise SystemExit(f"{completion.key}: {completion.error}")
    return [found[request.key].text for request in requests]


def compare(folder: str, dtype: str, groups: list[list[str]], settings: dict[str, Any], rounds: int) -> Sums:
    """Answer each group with the reference loop and with the engine by turns; the first group warms both up."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), attn_implementation="sdpa").eval()
    entry = {"path": folder, "dtype": dtype, "attention": "sdpa", "gpu": 0, **settings}
    engine = load_engine("transformers", entry, folder)
    short = [groups[0][0][-400:]]
    reference_texts(model, tokenizer, short, 4)
    engine_texts(engine, short, 4)
    sums = Sums()
    for _ in range(rounds):
        for group in groups:
            start = time.perf_counter()
            expected = reference_texts(model, tokenizer, group, 64)
            middle = time.perf_counter()
            found = engine_texts(engine, group, 64)
            sums.engine += time.perf_counter() - middle
            sums.reference += middle - start
            sums.prompts += len(group)
            sums.different += [pair for pair in zip(expected, found, strict=True) if pair[0] != pair[1]]
    engine.close()
    return sums


def main() -> None:
    """Measure the cases asked for and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a model with a chat template")
    parser.add_argument("--prompts", type=int, default=6, help="documents, and positions of the needle (10 if more)")
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is answered")
    parser.add_argument("--tokens", type=int, nargs=2, default=(1000, 4000), help="shortest and longest document")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prefill-chunk", type=int, default=512)
    parser.add_argument("--decode", choices=["single", "merged"], default="merged")
    parser.add_argument("--together", type=int, default=10, help="unshared prompts that are given at once")
    parser.add_argument("--prompt-lookup", type=int, help="by default what pays with each dtype")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    shortest, longest = arguments.tokens
    for case in arguments.case:
        if case == "unshared":
            groups = made_up.unshared(tokenizer, arguments.prompts, shortest, longest, arguments.together)
        elif case == "needle":
            positions = 10 if arguments.prompts >= 6 else arguments.prompts
            groups = made_up.needles(tokenizer, (shortest + longest) // 2, positions)
        else:
            groups = made_up.shared(tokenizer, max(1, arguments.prompts // 2), shortest, longest)
        dtype = "bfloat16" if case.endswith("bf16") else "float32"
        lookup = LOOKUP[dtype] if arguments.prompt_lookup is None else arguments.prompt_lookup
        settings = {"prefill_chunk": arguments.prefill_chunk, "prompt_lookup": lookup, "decode": arguments.decode}
        sums = compare(arguments.model, dtype, groups, settings, arguments.rounds)
        print(
            f"{case:<12} {dtype:<9} {sums.reference / sums.engine:5.2f}x the reference loop, "
            f"{sums.prompts - len(sums.different)} of {sums.prompts} texts equal",
            flush=True,
        )
        for expected, found in sums.different:
            print(f"    reference {expected!r}\n    engine    {found!r}")


if __name__ == "__main__":
    main()
