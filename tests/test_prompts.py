"""Rendering, middle truncation and chat wrappers."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standin import Words

from longflow import benchmarks
from longflow.config import PROMPT_FIELDS
from longflow.errors import UserError
from longflow.prompts import (
    CHATGLM3,
    REFERENCE_TEMPLATES,
    chat_rule_error,
    counts_special_tokens,
    post_process,
    render,
    template_error,
    truncate_middle,
    wrap,
)


@pytest.mark.parametrize("dataset", benchmarks.load("lveval").tasks)
def test_rendering_is_str_format(dataset):
    template = benchmarks.load("lveval").task(dataset).prompt
    fields = {"context": "Body with {braces} and 中文", "input": "Why {context}?", "answers": ["x"], "length": 3}
    text, start = render(template, fields)
    assert text == template.format(**fields)
    assert text[start : start + len(fields["context"])] == fields["context"]


def test_rendering_names_a_missing_field():
    with pytest.raises(UserError, match=r"names \{input\}"):
        render("{context}{input}", {"context": "x"})


def test_lveval_prompts_are_the_reference_s(shared):
    import json

    reference = json.loads((shared / "reference/lveval_tasks.json").read_text(encoding="utf-8"))
    table = benchmarks.load("lveval")
    assert list(table.tasks) == reference["_meta"]["dataset_order"]
    assert list(table.lengths) == reference["_meta"]["length_order"]
    for name, expected in reference["tasks"].items():
        task = table.task(name)
        assert task.prompt == expected["prompt"]
        assert task.max_new_tokens == expected["max_new_tokens"]
        assert task.metric == expected["metric"]
        assert task.n == expected["n_samples_per_length"]
        assert (task.language, task.category) == (expected["language"], expected["category"])
        assert template_error(task.prompt, PROMPT_FIELDS) is None


class Bytes:
    """A tokenizer of bytes with a BOS (256) and an EOS (257), so that a cut can divide a Chinese character."""

    def encode(self, text, special_tokens):
        return [256] * special_tokens + list(text.encode("utf-8"))

    def decode(self, ids):
        return bytes(i for i in ids if i < 256).decode("utf-8", errors="replace")

    def chat(self, prompt, options):
        return f"<s>{prompt}</s>"


def reference_truncation(prompt, limit, tokenizer):
    """The rule in FACTS words: cut before the wrapper, halves decoded apart, special tokens skipped, no separator."""
    ids = tokenizer.encode(prompt, True)
    if len(ids) > limit:
        half = int(limit / 2)
        return tokenizer.decode(ids[:half]) + tokenizer.decode(ids[len(ids) - half :])
    return prompt


@given(st.text(alphabet="ab 中文。\n", max_size=60), st.integers(2, 80))
def test_truncation_equals_the_rule(prompt, limit):
    tokenizer = Bytes()
    cut = truncate_middle(prompt, limit, tokenizer)
    assert cut.text == reference_truncation(prompt, limit, tokenizer)
    assert cut.tokens == 1 + len(prompt.encode())
    if cut.kept_head is None:
        assert cut.text == prompt
    else:
        assert cut.tokens > limit
        assert prompt.startswith(cut.text[: cut.kept_head])
        assert prompt.endswith(cut.text[len(cut.text) - cut.kept_tail :])


def test_truncation_of_an_odd_limit_loses_a_token_and_a_cut_character_is_broken():
    cut = truncate_middle("abcdef" * 10, 11, Bytes())
    assert cut.text == "abcd" + "bcdef"  # 5 ids at the head, BOS among them, and 5 at the tail
    assert (cut.kept_head, cut.kept_tail) == (4, 5)
    broken = truncate_middle("中" * 20, 10, Bytes())
    assert broken.text == "中\ufffd" + "\ufffd\ufffd中"
    assert (broken.kept_head, broken.kept_tail) == (1, 1)


@given(st.text(alphabet="ab 中文。\n", max_size=60), st.integers(2, 80))
def test_truncation_that_decodes_once_equals_the_rule(prompt, limit):
    """LongBench v2: ids[: limit // 2] + ids[-limit // 2 :], joined and decoded once; an odd limit keeps all of it."""
    tokenizer = Bytes()
    ids = tokenizer.encode(prompt, True)
    expected = tokenizer.decode(ids[: limit // 2] + ids[-limit // 2 :]) if len(ids) > limit else prompt
    cut = truncate_middle(prompt, limit, tokenizer, "middle_joined")
    assert cut.text == expected
    assert (cut.kept_head is None) == (len(ids) <= limit)


def test_an_uncut_prompt_is_sent_as_it_is():
    prompt = "word " * 50
    assert truncate_middle(prompt, 51 + 1, Words()).text == prompt


def test_wrappers_of_the_reference():
    expected = {
        "chatglm2": "[Round 1]\n\n问：P\n\n答：",
        "bluelm": "[|Human|]:P[|AI|]:",
        "vicuna": "A chat between a curious user and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the user's questions. USER: P ASSISTANT:",
        "llama2": "[INST]P[/INST]\n\n",
        "mistral": "<s>[INST] P [/INST]",
        "internlm": "<|User|>:P<eoh>\n<|Bot|>:",
        "longbench-llama2": "[INST]P[/INST]",
        "longchat": "A chat between a curious user and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the user's questions. USER: P ASSISTANT:",
        "xgen": "A chat between a curious human and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the human's questions.\n\n ### Human: P\n###",
    }
    assert set(expected) == set(REFERENCE_TEMPLATES)
    for name, text in expected.items():
        wrapped = wrap("P", f"reference:{name}", Bytes(), {}, messages=False)
        assert (wrapped.prompt, wrapped.special_tokens) == (text, True)


def test_mistral_has_two_bos_as_in_the_reference_and_template_never_has(tmp_path):
    from helpers_models import CHATML, make_tokenizer

    from longflow.engines.tokenizers import load_tokenizer

    folder = tmp_path / "tokenizer"
    make_tokenizer(bos=True, chat_template="{{ bos_token }}" + CHATML).save_pretrained(folder)
    tokenizer = load_tokenizer(str(folder))
    bos = tokenizer.encode("", True)
    assert len(bos) == 1
    mistral = wrap("hello", "reference:mistral", tokenizer, {}, messages=False)
    assert tokenizer.encode(mistral.prompt, mistral.special_tokens)[:2] == bos * 2
    template = wrap("hello", "template", tokenizer, {}, messages=False)
    assert tokenizer.encode(template.prompt, template.special_tokens).count(bos[0]) == 1


# ChatGLM3, whose prompts are token ids


def chatglm3_tokenizer(**more):
    """A tokenizer with ChatGLM3's special tokens; [gMASK] and sop begin every text, as they do there."""
    from helpers_models import make_tokenizer
    from tokenizers import processors

    tokenizer = make_tokenizer(chat_template=None, **more)
    tokens = ["[gMASK]", "sop", "<|user|>", "<|assistant|>"]
    tokenizer.add_special_tokens({"extra_special_tokens": tokens})
    ids = tokenizer.convert_tokens_to_ids(tokens)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[gMASK] sop $A", special_tokens=list(zip(tokens[:2], ids[:2], strict=True))
    )
    return tokenizer, dict(zip(tokens, ids, strict=True))


QUESTION = "where does the river begin? 他住在哪里？"


def chatglm3_ids(tokenizer, special, text):
    """What the model's own code makes of a user's turn: each text tokenised by itself, the special tokens put in."""
    plain = [tokenizer(part, add_special_tokens=False)["input_ids"] for part in ("\n", text)]
    return [special["[gMASK]"], special["sop"], special["<|user|>"], *plain[0], *plain[1], special["<|assistant|>"]]


def test_chatglm3_s_prompt_is_made_of_its_special_tokens():
    from longflow.engines.tokenizers import HuggingFaceTokenizer

    inner, special = chatglm3_tokenizer()
    tokenizer = HuggingFaceTokenizer(inner, "glm")
    wrapped = wrap(QUESTION, CHATGLM3, tokenizer, {}, messages=False)
    assert wrapped.prompt == chatglm3_ids(inner, special, QUESTION)
    assert wrapped.special_tokens is False
    assert wrapped.tokens(tokenizer) == len(wrapped.prompt)
    assert tokenizer.decode(wrapped.prompt) == "\n" + QUESTION
    # A document cannot begin the model's turn.
    inside = wrap("a <|assistant|> b", CHATGLM3, tokenizer, {}, messages=False).prompt
    assert inside.count(special["<|assistant|>"]) == 1
    assert inside[-1] == special["<|assistant|>"]


@pytest.mark.parametrize("kind", ["lists", "np", "pt"])
def test_a_tokenizer_s_own_build_chat_input_comes_first(kind):
    from longflow.engines.tokenizers import HuggingFaceTokenizer

    inner, _ = chatglm3_tokenizer()

    def build_chat_input(query, history=None, role="user"):
        return inner([f"{role}: {query}"], return_tensors=None if kind == "lists" else kind)

    inner.build_chat_input = build_chat_input
    wrapped = wrap(QUESTION, CHATGLM3, HuggingFaceTokenizer(inner, "glm"), {}, messages=False)
    assert wrapped.prompt == inner(f"user: {QUESTION}")["input_ids"]
    assert {type(token) for token in wrapped.prompt} == {int}


def test_what_cannot_build_chatglm3_s_prompt_is_named():
    from helpers_models import make_tokenizer

    from longflow.engines.tokenizers import HuggingFaceTokenizer

    with pytest.raises(UserError, match=r"tokenizer tiny: it has no build_chat_input and no token \[gMASK\]"):
        wrap("x", CHATGLM3, HuggingFaceTokenizer(make_tokenizer(), "tiny"), {}, messages=False)
    broken, _ = chatglm3_tokenizer()
    broken.build_chat_input = lambda query: broken.no_such_method(query)
    with pytest.raises(UserError, match=r"tokenizer glm: its build_chat_input cannot be run.*no_such_method"):
        wrap("x", CHATGLM3, HuggingFaceTokenizer(broken, "glm"), {}, messages=False)
    for tokenizer in (None, Bytes()):
        with pytest.raises(UserError, match="chat: reference:chatglm3 needs the tokenizer of a ChatGLM3 model"):
            wrap("x", CHATGLM3, tokenizer, {}, messages=False)


def test_chatglm3_s_limit_counts_no_special_tokens():
    assert [counts_special_tokens(rule) for rule in ("reference:chatglm3", "reference:chatglm2", "template")] == [
        False, True, True,
    ]  # fmt: skip
    tokenizer, prompt = Bytes(), "abcdef"
    assert truncate_middle(prompt, 6, tokenizer, special_tokens=False).text == prompt
    assert truncate_middle(prompt, 6, tokenizer).text == "abdef"  # the BOS took a place in the first half
    assert truncate_middle(prompt, 4, tokenizer, special_tokens=False).text == "abef"


def test_the_rule_has_a_name_like_the_others():
    assert chat_rule_error("reference:chatglm3") is None
    assert chat_rule_error("reference:chatglm") == "no reference template 'chatglm'; did you mean 'chatglm3'?"


def test_tokens_of_what_is_sent():
    assert wrap("ab", "none", None, {}, messages=False).tokens(Bytes()) == 3
    assert wrap("ab", "template", None, {}, messages=True).tokens(Bytes()) is None


def test_own_wrapper_keeps_braces_and_a_server_gets_messages():
    own = wrap("a {b} {prompt}", "<{x}>{prompt}</{x}>", None, {}, messages=False)
    assert own.prompt == "<{x}>a {b} {prompt}</{x}>"
    sent = wrap("text", "template", None, {}, messages=True)
    assert sent.prompt == [{"role": "user", "content": "text"}]
    with pytest.raises(UserError, match="needs a tokenizer"):
        wrap("text", "template", None, {}, messages=False)


def test_internlm_answers_end_at_the_first_eoa():
    assert post_process("reference:internlm", "yes<eoa>\n<eoa>x") == "yes"
    assert post_process("reference:llama2", "yes<eoa>") == "yes<eoa>"
    assert post_process("reference:xgen", " Assistant: yes\n") == " yes"
    assert post_process("template", "yes<eoa>") == "yes<eoa>"


def test_the_stand_in_s_tokenizer_is_lossless():
    words = Words()
    text = "".join(random.Random(1).choices("ab  \n中文.", k=300))
    assert words.decode(words.encode(text, True)) == text
