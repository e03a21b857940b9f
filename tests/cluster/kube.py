"""As much of the Kubernetes API as Spark's scheduler asks of it, on loopback.

It is no Kubernetes: it takes objects only if the published schema does, and runs a pod's container
as a process of this machine, with the image's entrypoint and the variables the pod has, in a folder
that is the pod's own if what the pod has there is.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from infra.process.subprocesses import die_with_parent
from tests.cluster.kinds import defects

Object = dict[str, Any]
POD = re.compile(r"^/api/v1/namespaces/[^/]+/pods/([^/?]+)$")
PODS = re.compile(r"^/api/v1/namespaces/[^/]+/pods$")


class Plant:
    """The pods there are, and their processes."""

    def __init__(
        self,
        entrypoint: Path,
        image: Mapping[str, str],
        logs: Path,
        secrets: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.pods: dict[str, Object] = {}
        self.described: list[Object] = []
        """All pods there were, as who may look at pods sees them."""
        self.refused: list[str] = []
        self.asked: list[str] = []
        self.secured: list[bool] = []
        """Of each pod, whether Spark gave it the application's secret."""
        self._entrypoint = entrypoint
        self._image = image
        self._logs = logs
        self._secrets = secrets
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._watchers: list[queue.Queue[Object]] = []
        self._lock = threading.Lock()
        self.closed = threading.Event()

    def put(self, pod: Object) -> Object:
        """Take a pod in and run its container, unless the API would refuse it."""
        found = defects(pod)
        self.refused += found
        if found:
            return {"kind": "Status", "status": "Failure", "message": "; ".join(found)}
        self.described.append(pod)
        name = pod["metadata"]["name"]
        pod["metadata"] |= {"uid": str(uuid.uuid4()), "resourceVersion": "1"}
        pod["status"] = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": []}
        (container,) = pod["spec"]["containers"]
        named = {one["name"]: self._value(one, pod) for one in container.get("env", ())}
        environment = {name: value for name, value in named.items() if value is not None}
        self.secured.append("_SPARK_AUTH_SECRET" in environment)
        with (self._logs / f"{name}.log").open("w") as log:
            self._processes[name] = subprocess.Popen(
                [str(self._entrypoint), *container["args"]],
                env={"PATH": os.environ["PATH"], **self._image, **environment},
                cwd=self._folder(pod),
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.pods[name] = pod
        self._tell("ADDED", pod)
        return pod

    def remove(self, name: str) -> None:
        """End a pod and its process."""
        with self._lock:
            pod = self.pods.pop(name, None)
            process = self._processes.pop(name, None)
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
        if pod is not None:
            self._tell("DELETED", pod)

    def watch(self) -> Iterator[Object]:
        """What happens from now on, until the plant is closed."""
        events: queue.Queue[Object] = queue.Queue()
        self._watchers.append(events)
        while not self.closed.is_set():
            with suppress(queue.Empty):
                yield events.get(timeout=1)

    def _tell(self, what: str, pod: Object) -> None:
        for watcher in self._watchers:
            watcher.put({"type": what, "object": pod})

    def _value(self, variable: Mapping[str, Any], pod: Object) -> str | None:
        """A variable's value as the kubelet gives it; None: it is not set."""
        if "valueFrom" not in variable:
            return str(variable.get("value", ""))
        if (wanted := variable["valueFrom"].get("secretKeyRef")) is not None:
            known = self._secrets.get(wanted["name"], {})
            return known.get(wanted["key"]) if wanted.get("optional") else known[wanted["key"]]
        found: Any = pod
        for part in variable["valueFrom"]["fieldRef"]["fieldPath"].split("."):
            found = found[part]
        return str(found)

    def _folder(self, pod: Object) -> Path:
        """Where a pod's container starts: in a folder of its own, or in one that all share."""
        (container,) = pod["spec"]["containers"]
        mounted = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        own = {one["name"] for one in pod["spec"]["volumes"] if "emptyDir" in one}
        alone = mounted.get(container.get("workingDir")) in own
        folder = self._logs / "work" / (pod["metadata"]["name"] if alone else "shared")
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class _Answers(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    plant: Plant

    def do_GET(self) -> None:
        path, asked = self._path()
        if PODS.match(path) and "watch" in asked:
            # A client that asks for a websocket takes a plain answer and asks again without.
            return self._tell(200, {}) if "Upgrade" in self.headers else self._watch()
        if PODS.match(path):
            kept = [pod for pod in self.plant.pods.values() if _chosen(pod, asked)]
            return self._tell(200, {"kind": "PodList", "apiVersion": "v1", "items": kept})
        if named := POD.match(path):
            pod = self.plant.pods.get(named[1])
            return self._tell(200 if pod else 404, pod or {"kind": "Status", "code": 404})
        return self._tell(404, {"kind": "Status", "code": 404})

    def do_POST(self) -> None:
        path, _ = self._path()
        body = self._body()
        if PODS.match(path):
            made = self.plant.put(body)
            return self._tell(201 if made["kind"] == "Pod" else 422, made)
        self.plant.refused += defects(body)
        return self._tell(201, body)

    def do_PATCH(self) -> None:
        path, _ = self._path()
        self._body()
        named = POD.match(path)
        return self._tell(200, self.plant.pods.get(named[1] if named else "", {"kind": "Status"}))

    def do_DELETE(self) -> None:
        path, asked = self._path()
        self._body()
        if named := POD.match(path):
            self.plant.remove(named[1])
        elif PODS.match(path):
            for pod in [one for one in self.plant.pods.values() if _chosen(one, asked)]:
                self.plant.remove(pod["metadata"]["name"])
        return self._tell(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def log_message(self, format: str, *args: Any) -> None:
        self.plant.asked.append(format % args)

    def _path(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return parts.path, parse_qs(parts.query)

    def _body(self) -> Object:
        length = int(self.headers.get("Content-Length") or 0)
        found: Object = json.loads(self.rfile.read(length) or b"{}")
        return found

    def _tell(self, code: int, answer: Object) -> None:
        told = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def _watch(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with suppress(ConnectionError):  # the driver has gone
            for event in self.plant.watch():
                told = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(told), told))
                self.wfile.flush()


def _chosen(pod: Object, asked: Mapping[str, list[str]]) -> bool:
    """Whether a pod has the labels of a selector of the form a=b,c=d."""
    labels = pod["metadata"].get("labels", {})
    wanted = ",".join(asked.get("labelSelector", [])).split(",")
    pairs = [one.split("=", 1) for one in wanted if "=" in one and "!" not in one]
    return all(labels.get(key) == value for key, value in pairs)


@contextmanager
def kube(plant: Plant) -> Iterator[str]:
    """Serve a plant; its address. All its pods end with it."""
    handler = type("Answers", (_Answers,), {"plant": plant})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        plant.closed.set()
        for name in list(plant.pods):
            plant.remove(name)
        server.shutdown()
        server.server_close()
