"""A hub on loopback, for the real huggingface_hub to talk to."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """A hub with one repository, speaking what huggingface_hub asks.

    Args:
        files: what is in it.
        name: org/name of it.
        kind: "models" or "datasets".
        commit: the commit that every revision it knows stands for.
    """

    def __init__(
        self, files: dict[str, bytes], name: str = "org/tiny", kind: str = "models", commit: str = COMMIT
    ) -> None:
        self.files = files
        self.name = name
        self.commit = commit
        self.api = f"/api/{kind}/{name}"
        self.resolve = f"/{name}/resolve/{commit}/" if kind == "models" else f"/{kind}/{name}/resolve/{commit}/"
        self.fetched: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(hub) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self._answer(body=False)

            def do_GET(self) -> None:
                self._answer(body=True)

            def _answer(self, body: bool) -> None:
                path = unquote(urlsplit(self.path).path)
                headers: dict[str, str] = {}
                if path.startswith("/api/models/org/gated") or path.startswith("/org/gated"):
                    return self._send(403, b"{}", {"X-Error-Code": "GatedRepo"}, body)
                if path.startswith(f"{hub.api}/revision/"):
                    if path.rsplit("/", 1)[1] not in ("main", "v1", hub.commit):
                        return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body)
                    siblings = [{"rfilename": name} for name in hub.files]
                    content = json.dumps({"id": hub.name, "sha": hub.commit, "siblings": siblings}).encode()
                elif path.startswith(f"{hub.api}/tree/{hub.commit}"):
                    content = json.dumps(
                        [
                            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                            for name, data in hub.files.items()
                        ]
                    ).encode()
                elif path.startswith(hub.resolve):
                    name = path.removeprefix(hub.resolve)
                    if name not in hub.files:
                        return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"}, body)
                    content = hub.files[name]
                    headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": hub.commit}
                    if body:
                        hub.fetched.append(name)
                else:
                    return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)
                return self._send(200, content, headers, body)

            def _send(self, status: int, content: bytes, headers: dict[str, str], body: bool) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if body:
                    self.wfile.write(content)

        return Handler
