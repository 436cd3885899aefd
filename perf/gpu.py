"""The engine on a GPU against the reference loop in the same run: speed, memory, and how near the chip's peak.

Models have random weights in the shapes of Llama-3-8B and Qwen2.5-7B, prompts are random token ids, answers have a
fixed number of tokens. For each length: one prompt, three that share all but their last 200 tokens, and, for the two
shorter lengths, four that share nothing with `decode: merged`. The reference
loop is `generate` with batch size 1, the whole prompt at once; where it does not fit the line says so. Its time for
three prompts is three times that for one, since it shares nothing.

Run from the project's root: perf/gpu.sh [--small]
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from longflow.engines import attention
from longflow.engines.decoding import Decoder
from longflow.engines.together import Together

TAIL = 200
SEVERAL = 4


@dataclass(frozen=True)
class Scale:
    """What is measured: shapes by name, lengths in tokens, tokens of an answer, and where."""

    shapes: dict[str, tuple[str, dict[str, Any]]]
    lengths: tuple[int, ...]
    answer: int
    device: str
    dtype: torch.dtype
    matrix: int


_LLAMA = {"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256}
_QWEN = {"num_attention_heads": 28, "num_key_value_heads": 4, "num_hidden_layers": 28, "vocab_size": 152064}

FULL = Scale(
    {
        "Llama-3-8B": ("LlamaConfig", {**_LLAMA, "hidden_size": 4096, "intermediate_size": 14336}),
        "Qwen2.5-7B": ("Qwen2Config", {**_QWEN, "hidden_size": 3584, "intermediate_size": 18944}),
    },
    lengths=(16384, 32768, 65536, 131072),
    answer=64,
    device="cuda",
    dtype=torch.bfloat16,
    matrix=8192,
)
_TINY = {"num_hidden_layers": 2, "vocab_size": 500, "num_attention_heads": 4, "num_key_value_heads": 2}
SMALL = Scale(
    {
        "Llama-3-8B (small)": ("LlamaConfig", {**_TINY, "hidden_size": 64, "intermediate_size": 128}),
        "Qwen2.5-7B (small)": ("Qwen2Config", {**_TINY, "hidden_size": 64, "intermediate_size": 128}),
    },
    lengths=(512, 1024),
    answer=8,
    device="cpu",
    dtype=torch.float32,
    matrix=256,
)


def wait(device: str) -> None:
    """Until the device has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def matmul_peak(scale: Scale) -> float:
    """FLOP/s of a large square matrix product, the best of ten."""
    size = scale.matrix
    one, other = torch.randn(2, size, size, device=scale.device, dtype=scale.dtype)
    best = float("inf")
    for _ in range(10):
        wait(scale.device)
        start = time.perf_counter()
        torch.mm(one, other)
        wait(scale.device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def make_model(scale: Scale, name: str) -> Any:
    """A model of this shape with random weights, made where it runs."""
    import transformers

    kind, shape = scale.shapes[name]
    config = getattr(transformers, kind)(
        **shape, max_position_embeddings=2 * scale.lengths[-1], eos_token_id=None, bos_token_id=None, pad_token_id=None
    )
    torch.manual_seed(0)
    with torch.device(scale.device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=scale.dtype).eval()


def prefill_flop(model: Any, length: int) -> float:
    """Operations of a prompt: every layer's weights for each token, and causal attention."""
    config = model.config
    weights = sum(p.numel() for p in model.model.layers.parameters())
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2.0 * weights * length + 2.0 * config.num_hidden_layers * config.num_attention_heads * size * length**2


class Measured:
    """Seconds and peak memory (GiB, None on a CPU) of a block; `failed` if memory did not suffice."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.seconds = float("nan")
        self.peak: float | None = None
        self.failed = False

    def __enter__(self) -> Measured:
        gc.collect()
        if self._device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        wait(self._device)
        self._start = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        if kind is torch.OutOfMemoryError:
            self.failed = True
            return True
        wait(self._device)
        self.seconds = time.perf_counter() - self._start
        if self._device == "cuda":
            self.peak = torch.cuda.max_memory_allocated() / 2**30
        return False


def gib(measured: Measured) -> str:
    """Peak memory in words."""
    return "out of memory" if measured.failed else "-" if measured.peak is None else f"{measured.peak:.1f} GiB"


def several(model: Any, prompts: list[Any], scale: Scale, chunk: int, lookup: int) -> None:
    """Answer prompts that share nothing, some at a time."""
    model.set_attn_implementation(attention.NAME)
    room = sum(len(ids) + scale.answer for ids in prompts)
    together: Together[int] = Together(model, room, len(prompts), chunk, lookup, 1.0)
    for number, ids in enumerate(prompts):
        list(together.add(number, ids.astype(np.int32), scale.answer, frozenset()))
    list(together.finish())


def measure(scale: Scale, name: str, chunk: int, lookup: int, peak: float) -> None:
    """Print a line for each length."""
    model = make_model(scale, name)
    rng = np.random.default_rng(0)
    attention.register()
    decoder = Decoder(model, chunk=chunk, lookup=lookup)
    vocabulary = model.config.vocab_size
    weights = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**30
    print(f"{name}: weights {weights:.1f} GiB")

    def reference(ids: Any, count: int) -> None:
        model.set_attn_implementation("sdpa")
        tokens = torch.from_numpy(ids.astype(np.int64))[None].to(scale.device)
        with torch.inference_mode():
            model.generate(
                input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, do_sample=False
            )

    def engine(ids: Any, count: int) -> None:
        model.set_attn_implementation(attention.NAME)
        decoder.answer(ids, count, frozenset())

    warm = rng.integers(0, vocabulary, scale.lengths[0] // 2).astype(np.int32)
    reference(warm, 2)
    engine(warm, 2)
    for length in scale.lengths:
        context = rng.integers(0, vocabulary, length - TAIL).astype(np.int32)
        prompts = [
            np.concatenate([context, rng.integers(0, vocabulary, TAIL).astype(np.int32)]).astype(np.int32)
            for _ in range(3)
        ]
        decoder.forget()
        with Measured(scale.device) as theirs:
            reference(prompts[0], scale.answer)
        with Measured(scale.device) as prefill:
            engine(prompts[0], 1)
        decoder.forget()
        with Measured(scale.device) as ours:
            engine(prompts[0], scale.answer)
        decoder.forget()
        with Measured(scale.device) as together:
            for prompt in prompts:
                engine(prompt, scale.answer)
        decoder.forget()
        beside = Measured(scale.device)
        if length <= scale.lengths[1]:
            with beside:
                several(model, [rng.integers(0, vocabulary, length) for _ in range(SEVERAL)], scale, chunk, lookup)
        speed = length / prefill.seconds
        share = prefill_flop(model, length) / prefill.seconds / peak
        print(
            f"  {length:>7} tokens: prefill {speed:,.0f} tokens/s, {share:.0%} of the matmul peak; "
            f"{theirs.seconds / ours.seconds:.2f}x the reference loop, with shared prefixes "
            f"{3 * theirs.seconds / together.seconds:.2f}x, {SEVERAL} prompts with decode: merged "
            f"{SEVERAL * theirs.seconds / beside.seconds:.2f}x; peak memory {gib(ours)} (reference {gib(theirs)})",
            flush=True,
        )


def main() -> None:
    """Measure every shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tiny shapes on the CPU: does the script run?")
    parser.add_argument("--prefill-chunk", type=int, help="4096; 128 with --small")
    parser.add_argument("--prompt-lookup", type=int, default=0)
    arguments = parser.parse_args()
    scale = SMALL if arguments.small else FULL
    if scale.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no GPU is visible; perf/gpu.sh --small runs tiny shapes on a CPU")
    chunk = arguments.prefill_chunk or (128 if arguments.small else 4096)
    name = torch.cuda.get_device_name() if scale.device == "cuda" else "CPU"
    peak = matmul_peak(scale)
    print(f"{name}, torch {torch.__version__}, {scale.dtype}, prefill_chunk {chunk}")
    print(f"matmul peak {peak / 1e12:.1f} TFLOP/s")
    for shape in scale.shapes:
        measure(scale, shape, chunk, arguments.prompt_lookup, peak)
        gc.collect()


if __name__ == "__main__":
    main()
