"""A hub on loopback: just enough of the Hugging Face hub's protocol for `datasets` to stream from it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Repositories = dict[str, dict[str, bytes]]  # "owner/name" -> path -> content


@contextmanager
def serve(repositories: Repositories, dropping: str | None = None) -> Iterator[str]:
    """The address of a running hub. dropping: a path whose connection breaks in the middle."""
    handler = type("Hub", (Handler,), {"repositories": repositories, "dropping": dropping})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    repositories: Repositories
    dropping: str | None

    def log_message(self, format: str, *args: Any) -> None:
        """Be quiet."""

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        for name, files in self.repositories.items():
            if path.startswith(f"/api/datasets/{name}/"):
                return self._describe(name, files, path.removeprefix(f"/api/datasets/{name}/"))
            if path.startswith(f"/datasets/{name}/resolve/"):
                return self._file(files, path.removeprefix(f"/datasets/{name}/resolve/").partition("/")[2])
        return self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    do_HEAD = do_GET

    def _describe(self, name: str, files: dict[str, bytes], question: str) -> None:
        kind, _, rest = question.partition("/")
        if kind == "revision":
            siblings = [{"rfilename": path} for path in files]
            return self._json({"id": name, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings})
        folder = rest.partition("/")[2]  # kind == "tree": what is in a folder
        above = f"{folder}/" if folder else ""
        entries: dict[str, dict[str, object]] = {}
        for path, content in files.items():
            if path.startswith(above):
                child, below, _ = path.removeprefix(above).partition("/")
                entry = {"type": "directory", "size": 0} if below else {"type": "file", "size": len(content)}
                entries[child] = {"path": above + child, "oid": _sha1(content), **entry}
        if not entries:
            return self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        return self._json(list(entries.values()))

    def _file(self, files: dict[str, bytes], path: str) -> None:
        if path not in files:
            return self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
        content, status = files[path], 200
        heads = {"ETag": f'"{_sha1(content)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if wanted := self.headers.get("Range"):
            first, last = wanted.removeprefix("bytes=").split("-")
            part = content[int(first) : int(last) + 1 if last else None]
            heads["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
            content, status = part, 206
        self._send(content, status, heads, cut=path == self.dropping)
        return None

    def _json(self, answer: object, status: int = 200, heads: dict[str, str] | None = None) -> None:
        self._send(json.dumps(answer).encode(), status, {"Content-Type": "application/json", **(heads or {})})

    def _send(self, content: bytes, status: int, heads: dict[str, str], cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {**heads, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.close_connection = True


def _sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
