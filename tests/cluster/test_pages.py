"""The pages of a standalone cluster's master and workers, with the settings we bring."""

from __future__ import annotations

from pathlib import Path

import httpx
import psutil
import pytest

from bench.standalone import standalone


@pytest.mark.cluster
def test_pages_are_on_loopback_want_a_token_and_end_nothing(conf: Path, tmp_path: Path) -> None:
    with standalone(tmp_path, workers=1, cores=1, conf=conf, host="127.0.0.2") as cluster:
        token = (conf / "pages.token").read_text().strip()
        for page in cluster.pages:
            with httpx.Client(base_url=page, timeout=30) as client:
                for path in ("/", "/json/", "/logPage/?appId=a&executorId=0&logType=stderr"):
                    assert client.get(path).status_code == 403, page
                client.headers["Authorization"] = f"Bearer {token}"
                assert client.get("/").status_code == 200
                assert client.get("/json/").status_code == 200
        # Where it is allowed, there is an address for it (405 to GET).
        killed = httpx.post(f"{cluster.pages[0]}/app/kill/", headers=client.headers)
        assert killed.status_code == 404
        listening = {
            (process.pid, socket.laddr.ip, socket.laddr.port)
            for process in (cluster.top, *cluster.workers)
            for socket in process.net_connections()
            if socket.status == psutil.CONN_LISTEN
        }
    pages = {int(page.rpartition(":")[2]) for page in cluster.pages}
    assert {port for _, ip, port in listening if ip == "127.0.0.1"} == pages
    assert {ip for _, ip, port in listening if port not in pages} == {"127.0.0.2"}
    assert len(listening) == 4  # nor does the master take jobs by HTTP
