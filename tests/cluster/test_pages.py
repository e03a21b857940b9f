"""The pages of a standalone cluster's master and workers, with the settings we bring."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from bench.standalone import standalone
from tests.cluster.sockets import listening


@pytest.mark.full
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
        # Where it is allowed, this leads back to the page of applications.
        killed = httpx.post(f"{cluster.pages[0]}/app/kill/", headers=client.headers, timeout=30)
        assert killed.is_client_error
        open_ = set().union(*(listening(one) for one in (cluster.top, *cluster.workers)))
    pages = {("127.0.0.1", int(page.rpartition(":")[2])) for page in cluster.pages}
    assert pages < open_
    assert [ip for ip, _ in open_ - pages] == ["127.0.0.2"] * 2  # nor are jobs taken by HTTP
