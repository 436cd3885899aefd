"""How much of a server's concurrent throughput the openai engine brings: requests of about 1k tokens.

Run from the project's root: python -m perf.api [--tokenizer FOLDER] [--model FOLDER]

By turns in one run: a bare client (a thread and a connection for each call at a time, the bodies made beforehand), the
engine with as many calls at a time, and the engine with one. The server is a real one in a process of its own that
takes requests concurrently and spends a fixed time on each; with --model it is `transformers serve` of that model
instead, started as a model's `serve` starts it. With --tokenizer the engine's prompts are tokenised, cut and counted
on the way, as in a run.
"""

import argparse
import contextlib
import http.client
import json
import os
import queue
import random
import shlex
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from longflow.engines import Generation, Request, load_engine
from longflow.engines.serve import Server
from longflow.prompts import truncate_middle

ANSWER = 16
LIMIT = 1000
WORDS = [
    *("river", "hill", "mill", "harbour", "letter", "garden", "winter", "teacher"),
    *("bridge", "island", "market", "captain", "window", "silver"),
]


class Handler(BaseHTTPRequestHandler):
    """Answers each request after a fixed time, whatever else is under way."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    service = 1.0

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply({})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(self.service)
        text = body["messages"][-1]["content"][-20:]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        usage = {"prompt_tokens": 1000, "completion_tokens": ANSWER, "total_tokens": 1000 + ANSWER}
        self.reply(
            {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        )

    def reply(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Concurrent(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def make_prompts(count, seed):
    """Prompts of a little over 1k tokens, no two alike."""
    words = random.Random(seed)
    return [f"{number}: " + " ".join(words.choice(WORDS) for _ in range(1050)) for number in range(count)]


def body_of(model, prompt):
    messages = [{"role": "user", "content": prompt}]
    return json.dumps({"model": model, "messages": messages, "max_tokens": ANSWER, "temperature": 0}).encode()


def bare(url, model, prompts, calls):
    """The server's own throughput: seconds, and the answers in order."""
    address = urlsplit(url)
    todo = queue.SimpleQueue()
    for number, prompt in enumerate(prompts):
        todo.put((number, body_of(model, prompt)))
    answers = [None] * len(prompts)

    def work():
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=600)
        with contextlib.suppress(queue.Empty):
            while True:
                number, body = todo.get_nowait()
                headers = {"Content-Type": "application/json"}
                connection.request("POST", f"{address.path}/chat/completions", body, headers)
                value = json.loads(connection.getresponse().read())
                answers[number] = value["choices"][0]["message"]["content"]
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(calls)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began, answers


def through_engine(url, model, prompts, calls, tokenizer):
    """The engine: seconds, from its making to its close, and the answers in order."""
    entry = {"engine": "openai", "base_url": url, "model": model, "api": "chat", "api_calls": calls, "timeout": 600}
    began = time.perf_counter()
    engine = load_engine("openai", entry | {"tokenizer": tokenizer, "window": 8192 if tokenizer else None}, None)

    def requests():
        for number, prompt in enumerate(prompts):
            if counter := engine.tokenizer():
                prompt = truncate_middle(prompt, LIMIT, counter).text
            yield Request(str(number), [{"role": "user", "content": prompt}], False, Generation(ANSWER), str(number))

    if tokenizer:
        engine.tokenizer()  # loading it is no part of the throughput
        began = time.perf_counter()
    answers = [None] * len(prompts)
    for completion in engine.generate(requests()):
        assert completion.error is None, completion.error
        answers[int(completion.key)] = completion.text
    engine.close()
    return time.perf_counter() - began, answers


def measure(url, model, arguments):
    prompts = make_prompts(arguments.requests, seed=0)
    if arguments.tokenizer:  # the same texts for all; the engine then finds nothing left to cut
        from longflow.engines.tokenizers import load_tokenizer

        counter = load_tokenizer(arguments.tokenizer)
        prompts = [truncate_middle(prompt, LIMIT, counter).text for prompt in prompts]
    bare(url, model, prompts[:1], 1)  # warm
    times = {"bare": [], "engine": [], "one": []}
    for turn in range(arguments.rounds):
        for name in list(times) if turn % 2 == 0 else reversed(list(times)):
            if name == "bare":
                seconds, answers = bare(url, model, prompts, arguments.calls)
            else:
                calls = arguments.calls if name == "engine" else 1
                seconds, answers = through_engine(url, model, prompts, calls, arguments.tokenizer)
            times[name].append(seconds)
            if turn == 0 and name == "bare":
                expected = answers
            assert answers == expected, "the answers differ"
    best = {name: median(values) for name, values in times.items()}
    print(f"{len(prompts)} requests, {arguments.calls} at a time, median of {arguments.rounds}; all answers equal")
    print(f"{best['bare'] / best['engine']:6.1%}  of the server's own concurrent throughput (goal: 90 %)")
    print(f"{best['one'] / best['engine']:6.2f}x the engine with one request at a time")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=8, help="requests at the same time")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--service", type=float, default=1.0, help="seconds the server spends on a request")
    parser.add_argument("--tokenizer", help="folder of a tokenizer to cut and count with")
    parser.add_argument("--model", help="folder of a model for a real `transformers serve`")
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.port:
        Handler.service = arguments.service
        Concurrent(("127.0.0.1", arguments.port), Handler).serve_forever()
    elif arguments.model:
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        command = "transformers serve {model} --device cpu --dtype float32 --host 127.0.0.1 --port {port}"
        with Server(command, model=arguments.model) as url:
            measure(url, arguments.model, arguments)
    else:
        own = f"exec {shlex.quote(sys.executable)} -m perf.api --service {arguments.service} --port {{port}}"
        with Server(own, model="m") as url:
            measure(url, "m", arguments)


if __name__ == "__main__":
    main()
