"""How much faster than the package `rouge` 1.0.1 our ROUGE-L is, with equal results.

Run from the project's root: python -m perf.rouge_l
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from rouge import Rouge

from longflow.metrics import rouge_score, rouge_zh_score_blacklist
from longflow.metrics.rouge import _second_cut
from longflow.metrics.text import normalize_zh, segment, stop_words

Pair = tuple[str, str]

CHINESE_WORDS = """
水垢 可以 用 白醋 清洗 也 柠檬酸 小苏打 效果 很好 的 和 是 电脑 手机 打开 设置 选择 网络
然后 点击 确定 孩子 发烧 多喝 热水 医院 检查 建议 及时 就诊 价格 大概 在 左右 不同 地区 有
差异 根据 情况 而 定 苹果 维生素 丰富 对 身体 有益 每天 吃 一个 首先 准备 材料 面粉 鸡蛋
白糖 搅拌 均匀 放入 烤箱 烤 十分钟 2015年 3.5 500 元 App
"""


def package_score(prediction: str, truth: str) -> float:
    """What the references make of the package: an error is 0."""
    try:
        return float(Rouge().get_scores([prediction], [truth], avg=True)["rouge-l"]["f"])
    except Exception:
        return 0.0


def package_zh_score(prediction: str, truth: str) -> float:
    """The reference's recipe for dureader: cut, join, cut again, normalise, filter."""

    def prepared(text: str) -> str:
        cut = segment.__wrapped__
        tokens = [normalize_zh(token) for token in cut(" ".join(cut(text)))]
        return " ".join(token for token in tokens if token not in stop_words("zh"))

    return package_score(prepared(prediction), prepared(truth))


def edited(words: list[str], vocabulary: list[str], rng: random.Random) -> list[str]:
    """Another text with about half of the words of the first, in its order."""
    return [word if rng.random() < 0.5 else rng.choice(vocabulary) for word in words]


def english_pairs(count: int, rng: random.Random, sentence: int | None = 18) -> list[Pair]:
    """Summaries of 150 to 250 words, in sentences of about `sentence` words, or without full stops."""
    vocabulary = [f"w{int(rng.paretovariate(0.7)) % 5000}" for _ in range(5000)]

    def text(words: list[str]) -> str:
        if sentence is None:
            return " ".join(words)
        return " ".join(word + ("." if rng.random() < 1 / sentence else "") for word in words)

    pairs = []
    for _ in range(count):
        words = rng.choices(vocabulary, k=rng.randint(150, 250))
        pairs.append((text(edited(words, vocabulary, rng)), text(words)))
    return pairs


def chinese_pairs(count: int, rng: random.Random) -> list[Pair]:
    """Answers of about 100 characters, as a model writes for dureader with its 64 tokens, and truths twice as long."""
    vocabulary = CHINESE_WORDS.split()
    stops = ["", "", "", "", "，", "，", "。", "；\n"]
    pairs = []
    for _ in range(count):
        words = rng.choices(vocabulary, k=rng.randint(60, 160))
        other = edited(words, vocabulary, rng)[: rng.randint(30, 60)]
        pairs.append(
            ("".join(w + rng.choice(stops) for w in other), "".join(w + rng.choice(stops) for w in words)),
        )
    return pairs


def seconds(function: Callable[[str, str], float], pairs: list[Pair]) -> tuple[float, list[float]]:
    """Wall time over all pairs, and the scores."""
    start = time.perf_counter()
    scores = [function(prediction, truth) for prediction, truth in pairs]
    return time.perf_counter() - start, scores


def compare(
    title: str, theirs: Callable[[str, str], float], ours: Callable[[str, str], float], pairs: list[Pair]
) -> None:
    """Print one line: both times, their ratio, and whether all results are equal."""
    slow, expected = seconds(theirs, pairs)
    fast, found = seconds(ours, pairs)
    assert list(map(repr, found)) == list(map(repr, expected)), f"{title}: results differ"
    print(f"{title:<52} rouge {slow:7.3f} s   ours {fast:7.3f} s   {slow / fast:6.1f}x   {len(pairs)} equal")


def main() -> None:
    """Compare on English summaries and on Chinese answers."""
    rng = random.Random(0)
    segment("读字典")  # jieba's dictionary is read once; neither side pays for it here
    compare("English, 200 words in sentences", package_score, rouge_score, english_pairs(200, rng))
    compare("English, 200 words without full stops", package_score, rouge_score, english_pairs(200, rng, None))
    pairs = chinese_pairs(1000, rng)
    segment.cache_clear()
    _second_cut.cache_clear()
    compare("Chinese answers, nothing cached", package_zh_score, rouge_zh_score_blacklist, pairs)
    compare("Chinese answers, words cached", package_zh_score, rouge_zh_score_blacklist, pairs)


if __name__ == "__main__":
    main()
