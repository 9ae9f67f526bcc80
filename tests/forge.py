"""A small forge that keeps issues in memory and answers as GitHub and GitLab document it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from flask import Flask, abort, jsonify, request
from werkzeug.serving import make_server

TOKEN = "forge-token"


@dataclass
class Issue:
    number: int
    title: str
    text: str
    state: str = "open"
    comments: list[str] = field(default_factory=list)


class TinyForge:
    """Both APIs over the same issues; `refuse` answers everything with one status."""

    def __init__(self):
        self.issues: list[Issue] = []
        self.refuse: tuple[int, dict[str, str]] | None = None
        self.server = make_server("127.0.0.1", 0, self._app(), threaded=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def _find(self, number: int) -> Issue:
        return self.issues[number - 1] if 0 < number <= len(self.issues) else abort(404)

    def _open(self, title: str, text: str) -> Issue:
        self.issues.append(Issue(len(self.issues) + 1, title, text))
        return self.issues[-1]

    def _app(self) -> Flask:
        app = Flask("tiny-forge")

        @app.before_request
        def guard():
            if self.refuse:
                return jsonify(message="no"), self.refuse[0], self.refuse[1]
            given = request.headers.get("Authorization") or request.headers.get("PRIVATE-TOKEN", "")
            return None if given.endswith(TOKEN) else (jsonify(message="Bad credentials"), 401)

        @app.get("/repos/acme/kernels/issues")
        def listed():
            return jsonify([{"number": i.number, "body": i.text} for i in self.issues[::-1]])

        @app.post("/repos/acme/kernels/issues")
        def opened():
            issue = self._open(request.json["title"], request.json["body"])
            return jsonify(number=issue.number), 201

        @app.patch("/repos/acme/kernels/issues/<int:number>")
        def changed(number):
            self._find(number).state = request.json["state"]
            return jsonify(number=number)

        @app.get("/repos/acme/kernels/issues/<int:number>/comments")
        @app.get("/projects/acme%2Fkernels/issues/<int:number>/notes")
        @app.get("/projects/acme/kernels/issues/<int:number>/notes")
        def comments(number):
            return jsonify([{"id": k, "body": text} for k, text in enumerate(self._find(number).comments)])

        @app.post("/repos/acme/kernels/issues/<int:number>/comments")
        @app.post("/projects/acme/kernels/issues/<int:number>/notes")
        def commented(number):
            self._find(number).comments.append(request.json["body"])
            return jsonify(id=1), 201

        @app.get("/projects/acme/kernels/issues")
        def listed_there():
            return jsonify([{"iid": i.number, "description": i.text} for i in self.issues[::-1]])

        @app.post("/projects/acme/kernels/issues")
        def opened_there():
            issue = self._open(request.json["title"], request.json["description"])
            return jsonify(iid=issue.number), 201

        @app.put("/projects/acme/kernels/issues/<int:number>")
        def changed_there(number):
            self._find(number).state = {"close": "closed", "reopen": "open"}[request.json["state_event"]]
            return jsonify(iid=number)

        return app
