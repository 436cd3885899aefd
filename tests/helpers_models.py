"""Tiny random models with tokenizers of their own, made on the spot: nothing is downloaded, a second makes many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_TEXTS = [
    "the cat sat on the mat and the dog read a long book about the sea",
    "Question: where does the river begin? Answer: in the hills, near the old mill.",
    "请根据下面的文章回答问题。问题：他住在哪里？答案：他住在海边的小镇。",
    "0123456789 () [] {} <> def main(): return None",
]


def make_tokenizer(*, bos: bool = False, chat_template: str | None = CHATML, window: int = 1024) -> Any:
    """A byte-level BPE of about 400 tokens, trained here; with `bos` it begins every text with <s> as Llama's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(_TEXTS * 5, trainer)
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", inner.token_to_id("<s>"))]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", model_max_length=window
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def make_model(
    folder: Path,
    *,
    seed: int = 0,
    bos: bool = False,
    window: int = 1024,
    chat_template: str | None = CHATML,
    config: dict[str, Any] | None = None,
    generation: dict[str, Any] | None = None,
) -> Path:
    """Write a random 2-layer Llama (hidden size 64) with tokenizer into a folder and return the folder.

    Args:
        seed: of the weights: two seeds give two "checkpoints" of equal shapes.
        window: max_position_embeddings.
        config: further settings of LlamaConfig.
        generation: settings of generation_config.json, such as temperature.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    tokenizer = make_tokenizer(bos=bos, chat_template=chat_template, window=window)
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": window,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "initializer_range": 0.3,  # large enough that greedy text varies instead of repeating one token
    }
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**(settings | (config or {}))))
    for key, value in (generation or {}).items():
        setattr(model.generation_config, key, value)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_entry(path: Path | str, **changes: Any) -> dict[str, Any]:
    """A model's entry for the transformers engine with its defaults filled in."""
    entry: dict[str, Any] = {
        "engine": "transformers",
        "path": str(path),
        "revision": None,
        "tokenizer": None,
        "dtype": "float32",
        "attention": "sdpa",
        "gpu": 0,
        "threads": None,
        "trust_remote_code": False,
        "config_overrides": {},
        "chat_date": "2024-07-26",
    }
    return entry | changes
