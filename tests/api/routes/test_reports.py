"""Reports over REST: listed by form, fetched as attachments, and nothing else of the home."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient

from api.app import create_app
from infra.config.settings import load

TOKEN = "t" * 32


def test_kept_reports_are_listed_and_fetched(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "daily-2026-11-20_2026-11-21.html").write_text("<p>page</p>")
    (folder / "daily-2026-11-20_2026-11-21.csv.zip").write_bytes(b"PK")
    (folder / "notes.txt").write_text("mine")
    (tmp_path / "secret.json").write_text("{}")
    app = create_app(load(home=tmp_path, api={"token": TOKEN, "console": False}))
    with TestClient(app) as client:
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        items = client.get("/api/v1/reports").json()["items"]
        assert {(item["report"], item["form"]) for item in items} == {
            ("daily-2026-11-20_2026-11-21", "html"),
            ("daily-2026-11-20_2026-11-21", "csv"),
        }
        page = client.get("/api/v1/reports/daily-2026-11-20_2026-11-21.html")
        assert page.text == "<p>page</p>"
        assert page.headers["content-disposition"].startswith("attachment")
        for name in ("notes.txt", "..%2Fsecret.json", "missing.html"):
            assert client.get(f"/api/v1/reports/{name}").status_code == 404
        client.headers.clear()
        assert client.get("/api/v1/reports").status_code == 401
