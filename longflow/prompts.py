"""From a record to what is sent: render the template, cut the middle out, wrap as a chat.

The order is the references': the raw prompt is cut to the prompt limit before the chat wrapper is added, so that what
is sent may be longer than the limit by the wrapper and by what tokenising the seam anew brings.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from longflow.engines import Prompt, Tokenizer
from longflow.errors import UserError, nearest

VICUNA_SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)

XGEN_SYSTEM = (
    "A chat between a curious human and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the human's questions.\n\n"
)

# The wrappers of the models that the benchmarks were published with: LV-Eval utils.py (infinigence/LVEval @ 63e7ae93)
# and LongBench/pred.py (THUDM/LongBench @ 2e00731f), build_chat. Where the two differ, LongBench's is named so. They
# are texts, tokenised with the tokenizer's own BOS added, which for Mistral makes two of them, as in the reference.
REFERENCE_TEMPLATES = {
    "chatglm2": "[Round 1]\n\n问：{prompt}\n\n答：",
    "bluelm": "[|Human|]:{prompt}[|AI|]:",
    "vicuna": VICUNA_SYSTEM + " USER: {prompt} ASSISTANT:",
    "llama2": "[INST]{prompt}[/INST]\n\n",
    "mistral": "<s>[INST] {prompt} [/INST]",
    "internlm": "<|User|>:{prompt}<eoh>\n<|Bot|>:",
    "longbench-llama2": "[INST]{prompt}[/INST]",
    "longchat": VICUNA_SYSTEM + " USER: {prompt} ASSISTANT:",
    "xgen": XGEN_SYSTEM + " ### Human: {prompt}\n###",
}

CHATGLM3 = "reference:chatglm3"
"""The one rule of the references that makes token ids and no text: LongBench's for ChatGLM3."""


def _internlm_answer(text: str) -> str:
    return text.split("<eoa>")[0]


def _xgen_answer(text: str) -> str:
    return text.strip().replace("Assistant:", "")


POST_PROCESSING: dict[str, Callable[[str], str]] = {"internlm": _internlm_answer, "xgen": _xgen_answer}
"""What the reference does to the answers of a model, by the name of its template."""


def chat_rule_error(rule: str) -> str | None:
    """What is wrong with a `chat` rule, or None: template, none, reference:NAME or a text with {prompt}."""
    if rule in ("template", "none"):
        return None
    if rule.startswith("reference:"):
        name = rule.removeprefix("reference:")
        known = [*REFERENCE_TEMPLATES, CHATGLM3.removeprefix("reference:")]
        if name in known:
            return None
        return f"no reference template {name!r}; {nearest(name, known)}"
    if "{prompt}" in rule:
        return None
    return "should be template, none, reference:NAME, or a text with {prompt} in it"


def post_process(rule: str, text: str) -> str:
    """The answer as the reference keeps it, for a model used with one of its templates."""
    return POST_PROCESSING.get(rule.removeprefix("reference:"), str)(text) if rule.startswith("reference:") else text


def template_error(template: str, fields: set[str], needed: str = "context") -> str | None:
    """What is wrong with a prompt template, or None: it has to name {context} (or `needed`) and only known fields."""
    try:
        parts = [part[1:] for part in string.Formatter().parse(template) if part[1] is not None]
        named = {str(name) for name, _, _ in parts}
    except ValueError as error:
        return f"not a template ({error}); write {{{{ and }}}} for literal braces"
    unknown = sorted(named - fields)
    if unknown:
        return f"names {{{unknown[0]}}}, which no record has; fields are {', '.join(sorted(fields))}"
    if needed not in named:
        return f"does not name {{{needed}}}, so that the model would see none"
    for name, form, conversion in parts:
        if form or conversion:
            return f"gives {{{name}}} a format or a conversion; fields are named without one, as {{{needed}}}"
    return None


def render(template: str, fields: Mapping[str, Any]) -> tuple[str, int | None]:
    """The prompt of a record, and where in it the context begins (None if the template does not name it).

    Raises UserError naming a field that the record lacks.
    """
    parts: list[str] = []
    start = None
    try:
        for literal, name, form, conversion in string.Formatter().parse(template):
            parts.append(literal)
            if name is None:
                continue
            if name == "context" and start is None:
                start = sum(map(len, parts))
            parts.append(format(str(fields[name]) if conversion else fields[name], form or ""))
    except KeyError as error:
        raise UserError(f"the prompt template names {{{error.args[0]}}}, which the record does not have") from error
    return "".join(parts), start


@dataclass(frozen=True)
class Truncation:
    """A prompt after the cut. Counts are tokens before it; `kept_*` characters of the prompt, None if uncut."""

    text: str
    tokens: int
    kept_head: int | None = None
    kept_tail: int | None = None


TRUNCATIONS = ("middle", "middle_joined")
"""Rules of truncation: halves decoded apart (LV-Eval, LongBench), or ids joined and decoded once (LongBench v2)."""


def counts_special_tokens(chat: str) -> bool:
    """Whether a prompt is tokenised with special tokens to see if it is too long, for a model with this `chat` rule.

    LongBench tokenises once more, without them, for ChatGLM3; also for the data sets whose prompts it does not wrap.
    """
    return chat != CHATGLM3


def truncate_middle(
    prompt: str, limit: int, tokenizer: Tokenizer, rule: str = "middle", special_tokens: bool = True
) -> Truncation:
    """Cut the middle out of a prompt of more than `limit` tokens, exactly as the references do.

    The prompt is tokenised with special tokens (a BOS counts), or without (see `counts_special_tokens`). If it is too
    long, the first and the last int(limit / 2) ids are decoded separately, special tokens skipped, and joined without a
    separator; an odd limit loses a token, and a character whose bytes the cut divides becomes U+FFFD. The rule
    `middle_joined` keeps the first limit // 2 ids and the rest of the limit from the end, joins the ids and decodes
    them once.
    Source: prediction.py of infinigence/LVEval @ 63e7ae93; of THUDM/LongBench @ 2e00731f, LongBench/pred.py (`middle`)
    and pred.py (`middle_joined`).
    """
    ids = tokenizer.encode(prompt, special_tokens=special_tokens)
    if len(ids) <= limit:
        return Truncation(prompt, len(ids))
    if rule == "middle_joined":
        text = tokenizer.decode(ids[: limit // 2] + ids[-limit // 2 :])
        return Truncation(text, len(ids), _common(text, prompt), _common(reversed(text), reversed(prompt)))
    half = limit // 2
    if half == 0:
        return Truncation("", len(ids), 0, 0)
    head, tail = tokenizer.decode(ids[:half]), tokenizer.decode(ids[-half:])
    return Truncation(head + tail, len(ids), _common(head, prompt), _common(reversed(tail), reversed(prompt)))


def _common(a: Iterable[str], b: Iterable[str]) -> int:
    """How many characters two texts have in common at their beginning."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        count += 1
    return count


@dataclass(frozen=True)
class Wrapped:
    """What is sent, and whether the tokenizer adds its special tokens to it (to a text; ids have them already)."""

    prompt: Prompt
    special_tokens: bool

    def tokens(self, tokenizer: Tokenizer) -> int | None:
        """How many tokens the model gets, or None for messages: how a server wraps them only it knows."""
        if isinstance(self.prompt, str):
            return len(tokenizer.encode(self.prompt, self.special_tokens))
        return None if any(isinstance(part, dict) for part in self.prompt) else len(self.prompt)


def wrap(text: str, rule: str, tokenizer: Tokenizer | None, options: Mapping[str, Any], messages: bool) -> Wrapped:
    """Wrap a prompt as a chat by a `chat` rule.

    `template` is the tokenizer's own chat template, which writes the special tokens itself, so none is added again;
    with `messages` (a server that wraps) the prompt goes out as one user message. `reference:chatglm3` makes token ids.
    Every other rule is plain text that is tokenised with special tokens, as the references do. Raises UserError where
    a tokenizer is missing or cannot do what the rule asks.
    """
    if rule == "template":
        if messages:
            return Wrapped([{"role": "user", "content": text}], special_tokens=False)
        if tokenizer is None:
            raise UserError("chat: template needs a tokenizer, and this engine has none; choose none or a text")
        return Wrapped(tokenizer.chat(text, dict(options)), special_tokens=False)
    if rule == "none":
        return Wrapped(text, special_tokens=True)
    if rule == CHATGLM3:
        build = getattr(tokenizer, "chatglm3", None)
        if build is None:
            raise UserError(f"chat: {CHATGLM3} needs the tokenizer of a ChatGLM3 model; name it under tokenizer:")
        return Wrapped(build(text), special_tokens=False)
    template = REFERENCE_TEMPLATES[rule.removeprefix("reference:")] if rule.startswith("reference:") else rule
    # Not str.format: the template of a user may hold other braces, and the prompt surely does.
    return Wrapped(template.replace("{prompt}", text), special_tokens=True)
