"""An engine for tests of everything around the engine: fast, and every model load and request is counted in a file.

Named `standin:StandIn` in a configuration, with this folder on the Python path. Its tokens are words and, in Chinese,
characters; its answer is made of the last words of the prompt, so that it depends on all that matters.
"""

import hashlib
import os
import re
import time

from longflow.engines import Completion


class Words:
    """A tokenizer: a token is a word with the white space before it, or a character that is no word's."""

    def __init__(self):
        self.vocabulary = {}
        self.texts = []

    def encode(self, text, special_tokens):
        ids = [0] if special_tokens else []
        for piece in re.findall(r"\s*[A-Za-z0-9]+|\s*.|\s+", text, flags=re.DOTALL):
            if piece not in self.vocabulary:
                self.vocabulary[piece] = len(self.texts) + 1
                self.texts.append(piece)
            ids.append(self.vocabulary[piece])
        return ids

    def decode(self, ids):
        return "".join(self.texts[i - 1] for i in ids if i)

    def chat(self, prompt, options):
        return f"<user>{prompt}<model>"


class StandIn:
    """Options: `fail` (requests whose record id ends so fail), `say` (a fixed answer), `name` (in the log of devices).
    Environment: STANDIN_COUNT and STANDIN_DEVICES name files to write to, STANDIN_DELAY the seconds of a request,
    STANDIN_FAIL what the id of a failing record ends with."""

    version = 1

    def __init__(self, entry, location):
        self.options = entry["options"]
        self.words = Words()

    def _count(self, what):
        path = os.environ.get("STANDIN_COUNT")
        if path:
            with open(path, "a", encoding="utf-8") as stream:
                stream.write(what + "\n")

    def tokenizer(self):
        return self.words

    def _device(self, what):
        path = os.environ.get("STANDIN_DEVICES")
        if path:
            with open(path, "a", encoding="utf-8") as stream:
                name = self.options.get("name", "standin") + f"-{os.getpid()}"
                stream.write(f"{what} {os.environ['CUDA_VISIBLE_DEVICES']} {time.monotonic()} {name}\n")

    def generate(self, requests):
        self._device("start")
        loaded = False
        for request in requests:
            if not loaded:
                self._count("load")
                loaded = True
            time.sleep(float(os.environ.get("STANDIN_DELAY", "0")))
            tokens = len(self.words.encode(str(request.prompt), request.special_tokens))
            fail = self.options.get("fail", os.environ.get("STANDIN_FAIL"))
            if fail is not None and request.name.endswith(fail):
                yield Completion(request.key, "", "error", error="it was told to fail")
                continue
            self._count("request " + request.name)
            digest = hashlib.sha256(str(request.prompt).encode()).hexdigest()[:6]
            text = self.options.get("say", f"answer {digest}")
            yield Completion(request.key, text, "stop", tokens, len(text.split()), 0.001)

    def close(self):
        self._device("end")
