"""A Kubernetes API server for tests without one: it answers get and list with objects of the test."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from typing_extensions import Self

Content = dict[str, Any]


class FakeApi:
    """`with FakeApi() as api:`; `api.objects` has the objects by their paths.

    code: not 200: every call is answered with it.
    """

    def __init__(self) -> None:
        self.begin()
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, content = api.answer(self.path)
                body = json.dumps(content).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def begin(self) -> None:
        """Forgets all objects."""
        self.objects: dict[str, Content] = {}
        self.code = 200

    def kubeconfig(self, folder: Path) -> Path:
        """Writes a kubeconfig file; returns its path."""
        path = folder / "kubeconfig"
        cluster = {"server": f"http://127.0.0.1:{self._server.server_address[1]}"}
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": "test"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }))  # fmt: skip
        return path

    def put(self, path: str, content: Content) -> None:
        """Makes or replaces an object. path: as `claims/team-a/third`, `pods/team-a/p`, `slices/s`."""
        self.objects[_paths(path)] = content

    def remove(self, path: str) -> None:
        del self.objects[_paths(path)]

    def answer(self, asked: str) -> tuple[int, Content]:
        """Returns code and content of an answer."""
        if self.code != 200:
            return self.code, _status(self.code, f"answered with {self.code} by the test")
        url = urlsplit(asked)
        if url.path in self.objects:
            return 200, self.objects[url.path]
        if url.path.rsplit("/", 1)[1] not in ("pods", "resourceclaims", "resourceslices"):
            return 404, _status(404, f"{url.path} not found")
        rows = [one for path, one in self.objects.items() if path.rsplit("/", 1)[0] == url.path]
        for selector in parse_qs(url.query).get("fieldSelector", []):
            field, _, value = selector.partition("=")
            rows = [one for one in rows if str(_field(one, field)) == value.lstrip("=")]
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": rows}


def _paths(path: str) -> str:
    kind, *names = path.split("/")
    if kind == "claims":
        return f"/apis/resource.k8s.io/v1/namespaces/{names[0]}/resourceclaims/{names[1]}"
    if kind == "pods":
        return f"/api/v1/namespaces/{names[0]}/pods/{names[1]}"
    return f"/apis/resource.k8s.io/v1/resourceslices/{names[0]}"


def _field(content: Content, name: str) -> Any:
    found: Any = content
    for part in name.split("."):
        found = (found or {}).get(part)
    return found


def _status(code: int, message: str) -> Content:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "message": message,
    }
