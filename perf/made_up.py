"""Prompts about invented people, of any length, for measuring: the same ones for the same seed."""

from __future__ import annotations

import random
from typing import Any

_FIRST = ["Mira", "Jonas", "Tessa", "Aldo", "Wenna", "Pavel", "Orla", "Bram", "Selma", "Ivo", "Dagny", "Ruben"]
_LAST = [
    "Tollan",
    "Verhage",
    "Quist",
    "Marlow",
    "Ostrander",
    "Pell",
    "Hargreave",
    "Lindqvist",
    "Brandt",
    "Okafor",
    "Soto",
    "Wren",
]
_TOWNS = [
    "Quaybridge",
    "Ostermoor",
    "Lindenfall",
    "Varrow",
    "Stonehithe",
    "Bellmarsh",
    "Kestrelby",
    "Thornwick",
    "Ashmere",
    "Dunvale",
]
_TRADES = [
    "kept bees",
    "built clocks",
    "mapped caves",
    "taught music",
    "repaired boats",
    "wrote ballads",
    "grew pears",
    "bred horses",
]
_PLACES = ["by the old mill", "near the harbour", "above the tannery", "beside the weir", "on the hill road"]

INSTRUCTION = "Please read the following passages and answer the question below.\n\n"


def passage(rng: random.Random) -> tuple[str, str, str]:
    """A passage, a question that it answers, and the answer."""
    name = f"{rng.choice(_FIRST)} {rng.choice(_LAST)}"
    town, year = rng.choice(_TOWNS), rng.randint(1801, 1990)
    text = (
        f"{name} was born in {town} in {year} and {rng.choice(_TRADES)} {rng.choice(_PLACES)}. "
        f"At the age of {rng.randint(17, 40)} {name.split()[0]} moved to {rng.choice(_TOWNS)}, where the winters were "
        f"{rng.choice(['long', 'mild', 'wet', 'bright'])} and {rng.randint(3, 90)} people lived. "
        f"There {rng.choice(_TRADES)} a certain {rng.choice(_FIRST)} {rng.choice(_LAST)}, who later "
        f"{rng.choice(_TRADES)} too.\n\n"
    )
    return text, f"In which town was {name} born?", town


def document(tokenizer: Any, tokens: int, rng: random.Random) -> tuple[str, list[str]]:
    """Passages of about so many tokens in all, and the questions that they answer."""
    texts: list[str] = []
    questions: list[str] = []
    length = 0
    while length < tokens or not texts:
        text, question, _ = passage(rng)
        texts.append(text)
        questions.append(question)
        length += len(tokenizer(text)["input_ids"])
    return "".join(texts), questions


def wrapped(tokenizer: Any, context: str, question: str) -> str:
    """The prompt of one question, in the tokenizer's chat template."""
    text = f"{INSTRUCTION}{context}\nQuestion: {question}\nAnswer in one short sentence."
    message = [{"role": "user", "content": text}]
    return str(tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True))


def unshared(tokenizer: Any, count: int, shortest: int, longest: int, size: int = 1, seed: int = 0) -> list[list[str]]:
    """Groups of prompts, each with a document of its own; lengths spread evenly, in each group over all of them."""
    rng = random.Random(seed)
    prompts = []
    for index in range(count):
        tokens = shortest + (longest - shortest) * index // max(1, count - 1)
        context, questions = document(tokenizer, tokens, rng)
        prompts.append(wrapped(tokenizer, context, rng.choice(questions)))
    groups = -(-count // size)
    return [prompts[group::groups] for group in range(groups)]


def shared(
    tokenizer: Any, count: int, shortest: int, longest: int, questions: int = 3, seed: int = 1
) -> list[list[str]]:
    """Groups of several questions on one document."""
    rng = random.Random(seed)
    groups = []
    for index in range(count):
        tokens = shortest + (longest - shortest) * index // max(1, count - 1)
        context, asked = document(tokenizer, tokens, rng)
        groups.append([wrapped(tokenizer, context, question) for question in rng.sample(asked, questions)])
    return groups


def needles(tokenizer: Any, tokens: int, positions: int = 10, seed: int = 2) -> list[list[str]]:
    """One group: one haystack with one sentence put in at evenly spaced places, from its beginning to its end."""
    rng = random.Random(seed)
    context, _ = document(tokenizer, tokens, rng)
    parts = context.split("\n\n")
    needle = "The password of the lighthouse is heron forty-seven."
    prompts = []
    for index in range(positions):
        place = len(parts) * index // max(1, positions - 1)
        text = "\n\n".join([*parts[:place], needle, *parts[place:]])
        prompts.append(wrapped(tokenizer, text, "What is the password of the lighthouse?"))
    return [prompts]
