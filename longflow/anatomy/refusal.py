"""Answers that are none: empty ones, and those that say that there is no answer.

The rules are phrases. They hold for the first sentences of a text, and not after a bare answer or in a note in
brackets: who gives an answer and then remarks on what the text does not say has answered.
"""

from __future__ import annotations

import re
from itertools import pairwise

from longflow.anatomy.words import sentence_ends

BEGINNING = 400
"""Characters of an answer in which a refusal is looked for."""

SENTENCES = 3
"""Sentences or lines of it."""

BARE = 5
"""A first sentence of so many words (Chinese: twice as many characters) is a bare answer."""

_SOURCE_EN = (
    r"(?:passages?|texts?|articles?|contexts?|documents?|information|story|stories|paper|script|excerpts?|content|"
    r"paragraphs?|report|sources?|transcript|conversation)"
)
_TELL_EN = (
    r"(?:mention|provide|contain|specify|state|say|include|give|answer|indicate|describe|discuss|reveal|refer|offer|"
    r"address|name|tell)"
)
_TOLD_EN = r"(?:mentioned|specified|provided|stated|given|found|available|included|described|discussed|indicated|clear)"

_ENGLISH = [
    re.compile(pattern)
    for pattern in (
        # I cannot answer; I do not have enough information
        r"\bi(?:'m| am)? (?:cannot|can not|can't|could not|couldn't|do not|don't|did not|didn't|not able to|unable to)"
        r" (?:\w+ ){0,2}?"
        r"(?:answer|find|determine|know|provide|tell|say|locate|assist|help|see|identify|confirm|have)\b",
        r"\b(?:unable|not possible|impossible|difficult) to (?:\w+ )?"
        r"(?:answer|determine|infer|find|identify|tell|say)\b",
        r"\b(?:cannot|can not|can't|could not|couldn't) be (?:\w+ )?"
        r"(?:answered|determined|found|identified|inferred|known|established)\b",
        # the passage does not mention; the given information is not sufficient
        rf"\b{_SOURCE_EN} (?:\w+ ){{0,4}}?(?:does|do|did)(?: not|n't) (?:\w+ ){{0,2}}?{_TELL_EN}\b",
        rf"\b{_SOURCE_EN} (?:\w+ ){{0,2}}?(?:is|are)(?: not|n't) (?:\w+ ){{0,2}}?(?:enough|sufficient|{_TOLD_EN})\b",
        # it is not mentioned in the passage
        rf"\bnot (?:\w+ ){{0,2}}?{_TOLD_EN} (?:\w+ ){{0,2}}?(?:in|by|from|within) (?:\w+ ){{0,3}}?{_SOURCE_EN}\b",
        r"\bthere (?:is|was|are) (?:no|not enough|not any|insufficient) (?:\w+ ){0,3}?"
        r"(?:mention|information|answer|evidence|reference|indication|record|details?|data)\b",
        rf"\b(?:no|not enough|insufficient) (?:\w+ )?(?:information|mention|details?|data|context)\b[^.]{{0,60}}?"
        rf"\b(?:{_TOLD_EN}|{_SOURCE_EN})\b",
        rf"\bnone of the (?:\w+ )?{_SOURCE_EN}\b",
        r"^(?:no answer|no information|insufficient information|not enough information|unanswerable|"
        r"not (?:\w+ )?(?:mentioned|specified|provided|stated|given|found|available|known|applicable)|"
        r"i(?:'m| am)? (?:so |very )?(?:sorry|not sure)|sorry|my apologies|i apologi[sz]e|as an ai)\b"
        r"|^(?:unknown|unclear|n/?a)(?=\W*$|,)",
    )
]

_SOURCE_ZH = r"(?:文章|文中|原文|文本|上文|段落|材料|资料|本文|上下文|信息|内容|文档)"
_TELL_ZH = r"(?:提到|提及|说明|给出|提供|指出|描述|涉及|介绍|记载|找到|包含|写明|交代|透露)"

_CHINESE = [
    re.compile(pattern)
    for pattern in (
        r"无法(?:直接|准确|明确|具体)?(?:回答|确定|得知|判断|找到|提供|给出|获知|知道|得出|推断)",
        r"不(?:能|可|足以)(?:直接|准确|明确|够)?(?:回答|确定|得知|判断|推断)",
        rf"{_SOURCE_ZH}[^。！？\n]{{0,20}}(?:没有|并未|未|没)(?:明确|直接|具体|有|曾)?地?{_TELL_ZH}",
        rf"(?:没有|并未|未|没)(?:明确|直接|具体|在)?{_SOURCE_ZH}?中?{_TELL_ZH}(?:相关|该|此|这|任何|具体|有关)",
        r"没有(?:足够|相关|具体|任何|关于|有关)[^。！？\n]{0,12}(?:信息|内容|答案|资料|记载)",
        rf"{_SOURCE_ZH}(?:不足|不够|有限|缺失)",
        r"^(?:我?不知道|我?不清楚|不详|未知|未提及|未提到|没有提到|没有提及|抱歉|对不起|很抱歉|非常抱歉|没有答案|暂无|无答案)",
        r"作为(?:一个|一名|一款)?(?:人工智能|ai|语言模型|大模型)",
    )
]

_OWN_EN = [_ENGLISH[0], _ENGLISH[-1]]
_OWN_ZH = _CHINESE[-2:]


def is_blank(text: str) -> bool:
    """Whether a text has neither a letter nor a digit."""
    return not any(character.isalnum() for character in text)


def refusal(text: str, sources: bool = True, later: bool = True) -> str | None:
    """The words by which a text says that it gives no answer, None if it does not say so.

    In both languages, whichever the task is in. Without `sources` (summaries, code), where "the report does not say"
    may well be part of an answer, only the model's own refusals count. Without `later` only the first sentence counts.
    """
    english, chinese = (_ENGLISH, _CHINESE) if sources else (_OWN_EN, _OWN_ZH)
    beginning = text.strip()[:BEGINNING].lower().replace("’", "'").lstrip(" \n\"'*“")
    for sentence in _sentences(beginning)[: SENTENCES if later else 1]:
        for pattern in (*english, *chinese):
            if found := pattern.search(sentence):
                return found[0]
    return None


def _sentences(text: str) -> list[str]:
    """The sentences of a text up to a note in brackets; only the first, if it is a bare answer."""
    text = re.split(r"[(（](?:note|注)", text)[0]
    ends = list(sentence_ends(text))
    found = [sentence for a, b in pairwise([0, *ends, len(text)]) if not is_blank(sentence := text[a:b].strip())]
    return found[:1] if found and _is_bare(found[0]) else found


def _is_bare(sentence: str) -> bool:
    words = sentence.strip(".!。！ ").split()
    return words not in _NOTHING and len(words) <= BARE and sum(not sign.isascii() for sign in sentence) <= 2 * BARE


_NOTHING = (["none"], ["no"], ["nothing"], ["nobody"], ["无"], ["没有"])
