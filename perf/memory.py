"""Peak memory of one prompt above weights and KV cache: prefilled at once by the reference loop, and by the engine.

Each side runs in a process of its own. Once the model is loaded and has answered a short prompt, what is free is given
back and the kernel's high-water mark is set back; what the mark then rises by, less the KV cache that the prompt fills,
is the working memory. Linux only.

Run from the project's root: python -m perf.memory MODEL_FOLDER [--tokens 8000] [--prefill-chunk 512]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import re
import subprocess
import sys
from pathlib import Path

from perf import made_up

MEBI = 2**20


def status(name: str) -> int:
    """A field of this process's memory status in bytes: VmRSS now, VmHWM the highest so far."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def measure(side: str, folder: str, tokens: int, chunk: int, threads: int) -> dict[str, float]:
    """Answer one prompt with one new token; returns tokens, working memory and KV cache in MiB."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from longflow.engines import load_engine
    from perf.engine import engine_texts, reference_texts

    logging.disable_progress_bar()
    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    (prompt,) = made_up.unshared(tokenizer, 1, tokens, tokens)[0]
    length = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    if side == "reference":
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
        config = model.config

        def answer(text: str) -> None:
            reference_texts(model, tokenizer, [text], 1)

    else:
        entry = {"path": folder, "dtype": "float32", "attention": "sdpa", "gpu": 0, "prefill_chunk": chunk}
        engine = load_engine("transformers", entry, folder)

        def answer(text: str) -> None:
            engine_texts(engine, [text], 1)

    answer(prompt[-2000:])
    if side == "engine":
        config = engine._model.config  # type: ignore[attr-defined]
        engine._decoder.forget()  # type: ignore[attr-defined]
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what the short prompt left behind would count as there before
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    answer(prompt)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache = 2 * config.num_hidden_layers * config.num_key_value_heads * size * 4 * length
    return {"tokens": length, "working": (status("VmHWM") - before - cache) / MEBI, "cache": cache / MEBI}


def main() -> None:
    """Measure both sides, each in its own process, and print their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder of a model with a chat template")
    parser.add_argument("--tokens", type=int, default=7900, help="length of the document")
    parser.add_argument("--prefill-chunk", type=int, default=512)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--side", choices=["reference", "engine"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    values = (arguments.model, arguments.tokens, arguments.prefill_chunk, arguments.threads)
    if arguments.side:
        print(json.dumps(measure(arguments.side, *values)))
        return
    found = {}
    for side in ("reference", "engine"):
        command = [sys.executable, "-m", "perf.memory", *sys.argv[1:], "--side", side]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[side] = json.loads(printed.splitlines()[-1])
        print(f"{side:<10} {found[side]['working']:8.0f} MiB above weights and KV cache", flush=True)
    one, other = found["reference"], found["engine"]
    print(
        f"{one['working'] / other['working']:.1f}x less working memory at {one['tokens']} tokens "
        f"(KV cache {one['cache']:.0f} MiB)"
    )


if __name__ == "__main__":
    main()
