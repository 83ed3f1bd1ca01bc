"""A hub on loopback that takes models in and gives them out: create, validate, preupload, LFS, commit, download."""

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlparse

import yaml

from tests.data.hub_server import COMMIT, Handler


@dataclass
class Hub:
    """What a hub holds and has been asked."""

    files: dict[str, bytes] = field(default_factory=dict)  # path -> content, of its one repository
    blobs: dict[str, bytes] = field(default_factory=dict)  # sha256 -> content
    asked: list[str] = field(default_factory=list)
    created: dict[str, Any] = field(default_factory=dict)
    refuse: int | None = None  # a status to answer every upload with; 507: the files themselves only
    address: str = ""


@contextmanager
def serve(refuse: int | None = None) -> Iterator[Hub]:
    """A running hub."""
    hub = Hub(refuse=refuse)
    handler = type("UploadHub", (UploadHandler,), {"hub": hub, "repositories": {}, "dropping": None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class UploadHandler(Handler):
    hub: Hub

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        if "/resolve/" in path:
            return self._file(self.hub.files, path.partition("/resolve/")[2].partition("/")[2])
        if path.startswith("/api/models/toy/model"):
            question = path.removeprefix("/api/models/toy/model").lstrip("/")
            return self._describe("toy/model", self.hub.files, question or "revision/main")
        return self._json({"error": "not found"}, 404)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body, path = self._body(), unquote(urlparse(self.path).path)
        self.hub.asked.append(path)
        if self.hub.refuse not in (None, 507):
            return self._json({"error": "no"}, self.hub.refuse)
        if path == "/api/repos/create":
            self.hub.created = json.loads(body)
            return self._json({"url": f"{self.hub.address}/toy/model"})
        if path == "/api/validate-yaml":
            head = yaml.safe_load(json.loads(body)["content"].split("---\n")[1])
            return self._json({"errors": [], "warnings": []}) if isinstance(head, dict) else self._json({}, 400)
        if "/preupload/" in path:
            return self._json({"files": [self._mode(file["path"]) for file in json.loads(body)["files"]]})
        if path.endswith("/info/lfs/objects/batch"):
            return self._json({"transfer": "basic", "objects": [self._place(o) for o in json.loads(body)["objects"]]})
        if "/commit/" in path:
            return self._commit(body)
        return self._json({"error": f"unknown question {path}"}, 500)

    def do_PUT(self) -> None:
        content = self._body()
        if self.hub.refuse is not None:
            return self._json({"error": "no room"}, self.hub.refuse)
        self.hub.blobs[hashlib.sha256(content).hexdigest()] = content
        return self._send(b"", 200, {})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _mode(self, path: str) -> dict[str, Any]:
        mode = "lfs" if path.endswith(".safetensors") else "regular"
        return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": None}

    def _place(self, wanted: dict[str, Any]) -> dict[str, Any]:
        oid = wanted["oid"]
        return {"oid": oid, "size": wanted["size"], "actions": {"upload": {"href": f"{self.hub.address}/blob/{oid}"}}}

    def _commit(self, body: bytes) -> None:
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                self.hub.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.hub.files[value["path"]] = self.hub.blobs[value["oid"]]
        self._json({"commitUrl": f"{self.hub.address}/toy/model/commit/{COMMIT}", "commitOid": COMMIT})
