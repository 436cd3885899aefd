"""Servers on loopback that speak OpenAI's protocol: one that misbehaves on request, and a real `transformers serve`.

As a program (`python helpers_server.py --port N`) it is the server that a model's `serve` starts.
"""

from __future__ import annotations

import argparse
import contextlib
import email.utils
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Reply = tuple[int, dict[str, str], Any]
"""Status, headers and body of an answer."""

# What a fault does: a reply, or a name that the handler knows.
ECHO = "x" * 280 + " Incorrect API key provided: {key}"  # cut at 300 characters, half a key would stay
LENGTH_WORDS = "This model's maximum context length is 4096 tokens, however you requested 5004 tokens."
FAULTS: dict[str, Reply] = {
    "429": (429, {"Retry-After": "0.4"}, {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}),
    "429 half a minute": (429, {"Retry-After": "30"}, {"error": {"message": "Rate limit reached"}}),
    "429 date": (429, {"Retry-After": "{in two seconds}"}, {"error": {"message": "Rate limit reached"}}),
    "429 too large": (429, {}, {"error": {"message": "Request too large for small: Limit 30000, Requested 40000"}}),
    "429 long": (429, {"Retry-After": "90000"}, {"error": {"message": "Daily limit reached"}}),
    "quota": (429, {}, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
    "500": (500, {}, {"error": {"message": "Internal error"}}),
    "503": (503, {}, "upstream connect error"),
    "400 length": (400, {}, {"error": {"message": LENGTH_WORDS, "code": "context_length_exceeded"}}),
    "413": (413, {}, "<html>413 Request Entity Too Large</html>"),
    "400 echo": (400, {}, {"error": {"message": ECHO}}),
    "500 echo": (500, {}, {"error": {"message": ECHO}}),
    "echo in 200": (200, {}, {"error": {"message": ECHO}}),
    "400": (400, {}, {"error": {"message": "Invalid value for 'seed'"}}),
    "401": (401, {}, {"error": {"message": "Incorrect API key provided: {key}"}}),
    "403 moderation": (403, {}, {"error": {"message": "Your input was flagged"}}),
    "404 model": (404, {}, {"error": {"message": "The model `small` does not exist", "code": "model_not_found"}}),
    "400 model": (400, {}, {"detail": "This server has 'big', not 'small'"}),
    "no choices": (200, {}, {"id": "1", "object": "chat.completion", "created": 1, "model": "small", "choices": []}),
    "no usage": (200, {}, {"choices": [{"message": {"content": "bare"}}]}),
    "odd usage": (200, {}, {"choices": [{"message": {"content": "odd"}}], "usage": {"prompt_tokens": "7"}}),
    "list content": (200, {}, {"choices": [{"message": {"content": [{"type": "text"}]}, "finish_reason": "stop"}]}),
    "null choice": (200, {}, {"choices": [None]}),
    "error in 200": (200, {}, {"error": {"message": "Provider returned error"}}),
}


class FakeServer:
    """Use as a context manager: `url` is its address with /v1.

    Args:
        faults: part of a prompt -> the faults of the requests that contain it, one after the other; afterwards they
            are answered. A reply, a name of `FAULTS`, "late" (answered after `hang` seconds), "hang" (closed without an
            answer after `hang` seconds), "cut" (closed at once), "half" (closed in the midst of the body),
            "not json", "null" (content null, cut at the limit), "filter" (finish_reason content_filter).
        answer: text of the answer to a prompt.
        delay: seconds that each answer takes.
        key: if given, another API key gets 401.
        port: where it listens; 0 is any free one.
        fields: what a chat may name its limit; another name is refused as OpenAI refuses it.
        health: what GET /health answers with, one status after the other; the last one stays.

    What came in stands in `requests` (path, key, body, time), and `most_at_once` is the largest number in work at
    the same time.
    """

    def __init__(
        self,
        faults: Mapping[str, Sequence[str | Reply]] | None = None,
        answer: Callable[[str], str] = lambda prompt: f"answer to {prompt}",
        delay: float = 0.0,
        hang: float = 5.0,
        key: str | None = None,
        port: int = 0,
        fields: tuple[str, ...] = ("max_tokens", "max_completion_tokens"),
        health: tuple[int, ...] = (200,),
    ) -> None:
        self.faults = {part: list(names) for part, names in (faults or {}).items()}
        self.answer = answer
        self.delay = delay
        self.hang = hang
        self.key = key
        self.fields = fields
        self.health = list(health)
        self.requests: list[dict[str, Any]] = []
        self.most_at_once = 0
        self.dead = False
        self.released = threading.Event()
        self._lock = threading.Lock()
        self._at_once = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> FakeServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def die(self) -> None:
        """Refuse connections from now on, and drop those that are open at their next request."""
        self.dead = True
        self._server.shutdown()
        self._server.server_close()

    def prompts(self) -> list[str]:
        """The prompts that came in, in order."""
        return [prompt_of(request["body"]) for request in self.requests]

    def _next_fault(self, prompt: str) -> str | Reply | None:
        for part, names in self.faults.items():
            if part in prompt and names:
                return names.pop(0)
        return None

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                if self.path == "/health":
                    status = server.health.pop(0) if len(server.health) > 1 else server.health[0]
                    self._send(status, {}, "{}")
                else:
                    self._send(200 if self.path == "/v1/models" else 404, {}, '{"object": "list", "data": []}')

            def do_POST(self) -> None:
                if server.dead:
                    self.close_connection = True
                    return
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                key = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
                with server._lock:
                    server._at_once += 1
                    server.most_at_once = max(server.most_at_once, server._at_once)
                    server.requests.append({"path": self.path, "key": key, "body": body, "time": time.monotonic()})
                    fault = server._next_fault(prompt_of(body))
                try:
                    self._reply(body, key, fault)
                finally:
                    with server._lock:
                        server._at_once -= 1

            def _reply(self, body: dict[str, Any], key: str, fault: str | Reply | None) -> None:
                time.sleep(server.delay)
                if server.key is not None and key != server.key:
                    fault = "401"
                (field,) = {"max_tokens", "max_completion_tokens"} & body.keys() or {None}
                if "messages" in body and field is not None and field not in server.fields:
                    self._send(400, {}, json.dumps({"error": {"message": refusal(field), "param": field}}))
                    return
                if fault == "late":
                    server.released.wait(server.hang)
                if fault == "hang":
                    server.released.wait(server.hang)
                    self.close_connection = True
                elif fault == "cut":
                    self.connection.close()
                    self.close_connection = True
                elif fault == "half":
                    self._send(200, {"Content-Length": "1000"}, '{"id": "1", "choices": [')
                    self.connection.close()
                    self.close_connection = True
                elif fault == "not json":
                    self._send(200, {}, "{'choices': oh")
                elif isinstance(fault, tuple) or fault in FAULTS:
                    status, headers, content = fault if isinstance(fault, tuple) else FAULTS[fault]
                    soon = email.utils.formatdate(time.time() + 2, usegmt=True)
                    headers = {name: value.replace("{in two seconds}", soon) for name, value in headers.items()}
                    text = content if isinstance(content, str) else json.dumps(content)
                    self._send(status, headers, text.replace("{key}", key))
                else:
                    self._send(200, {}, json.dumps(self._good(body, fault)))

            def _good(self, body: dict[str, Any], fault: str | Reply | None) -> dict[str, Any]:
                limit = body.get("max_tokens") or body.get("max_completion_tokens")
                words = server.answer(prompt_of(body)).split(" ")
                text, cut = " ".join(words[:limit]), limit is not None and len(words) > limit
                reason = "length" if cut or fault == "null" else "stop"
                if fault == "filter":
                    reason = "content_filter"
                chat = self.path.endswith("/chat/completions")
                choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "logprobs": None}
                if chat:
                    choice["message"] = {"role": "assistant", "content": None if fault == "null" else text}
                else:
                    choice["text"] = text
                prompt_tokens, answer_tokens = len(prompt_of(body).split(" ")), len(words[:limit])
                return {
                    "id": "1",
                    "object": "chat.completion" if chat else "text_completion",
                    "created": 1,
                    "model": body["model"],
                    "choices": [choice],
                    "usage": {
                        "prompt_tokens": prompt_tokens,
                        "completion_tokens": answer_tokens,
                        "total_tokens": prompt_tokens + answer_tokens,
                        "prompt_tokens_details": {"cached_tokens": prompt_tokens // 2},
                    },
                }

            def _send(self, status: int, headers: dict[str, str], text: str) -> None:
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
                self.wfile.flush()

        return Handler


def refusal(field: str) -> str:
    """How OpenAI refuses the name of a limit."""
    other = "max_completion_tokens" if field == "max_tokens" else "max_tokens"
    return f"Unsupported parameter: '{field}' is not supported with this model. Use '{other}' instead."


def prompt_of(body: dict[str, Any]) -> str:
    """The prompt in a request's body: the last message, or the text."""
    return str(body["messages"][-1]["content"] if "messages" in body else body["prompt"])


@contextlib.contextmanager
def transformers_serve(folder: Path, scratch: Path) -> Iterator[str]:
    """A real `transformers serve` of a model's folder on loopback, in float32 on the CPU; the address for a client."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = shutil.which("transformers", path=str(Path(sys.executable).parent)) or "transformers"
    command = [program, "serve", str(folder), "--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1"]
    with open(scratch / "server.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log)
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, scratch / "server.log")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(20)


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a server answers, at most three minutes."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(360):
        assert server.poll() is None, log.read_text(encoding="utf-8")
        try:
            with opener.open(url, timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(log.read_text(encoding="utf-8"))


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is only not collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int], seconds: float) -> bool:
    """Whether all these processes end within some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.05)
    return False


def main() -> None:
    """Serve until told to end, in one of the ways in which servers do it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--say", help="a line to print first")
    parser.add_argument("--fail", type=int, help="end with this status instead of serving")
    parser.add_argument("--pids", help="a file for the ids of this process and of a child of its own")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--health", type=int, nargs="+", default=[200])
    parser.add_argument("--dies", help="end at a prompt that contains this")
    arguments = parser.parse_args()
    if arguments.say:
        print(arguments.say, flush=True)
    if arguments.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arguments.pids:
        child = subprocess.Popen(["sleep", "600"])
        with open(arguments.pids, "a") as file:
            file.write(f"{os.getpid()} {child.pid}\n")
    if arguments.fail is not None:
        sys.exit(arguments.fail)

    def answer(prompt: str) -> str:
        if arguments.dies and arguments.dies in prompt:
            print("CUDA error: out of memory", flush=True)
            os._exit(3)
        return f"answer to {prompt}"

    with FakeServer(port=arguments.port, answer=answer, health=tuple(arguments.health)):
        threading.Event().wait()


if __name__ == "__main__":
    main()
