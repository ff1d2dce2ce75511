"""The portal's page and files: who gets them, how they are kept, what they carry."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from tests.unit.server.worlds import looped, world

from roost.web import vendor
from roost.web.assets import Assets

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
INDEX = '<!doctype html><script type="module" src="/assets/main.js"></script>'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of a portal."""
    found = tmp_path / "static"
    for name, text in {
        "index.html": INDEX,
        "main.js": "import './parts/a.js';" + " " * 500,
        "parts/a.js": "export {};",
        "vendor/versions.json": "{}",
    }.items():
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_text(text)
    return found


@pytest.fixture
def assets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Assets:
    """The same, with all libraries."""
    monkeypatch.setattr(vendor, "complete", lambda _folder: True)
    return Assets(folder)


@looped
async def test_a_browser_gets_the_page_at_every_path_without_a_token(
    tmp_path: Path, assets: Assets
) -> None:
    async with world(tmp_path) as here, here.client("nobody") as client:
        here.here.assets = assets
        for path in ("/", "/login", "/jobs", "/jobs/x-abcde?tab=logs", "/a/b/c", "/apix"):
            answer = await client.get(path, headers=HTML)
            assert answer.status_code == 200, path
            assert answer.headers["content-type"] == "text/html; charset=utf-8"
            assert f"/assets/{assets.digest}/main.js" in answer.text
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self'")
            assert "unsafe" not in policy
        for path in ("/api/v1/jobs", "/metrics", "/openapi.json", "/api", "/api/nothing"):
            assert (await client.get(path, headers=HTML)).status_code == 401, path
        for method in ("POST", "PUT", "DELETE", "HEAD"):
            assert (await client.request(method, "/jobs", headers=HTML)).status_code == 401
        host = {**HTML, "Host": "evil.example"}
        assert (await client.get("/", headers=host)).status_code == 421


@looped
async def test_other_callers_get_what_they_always_got(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        async with here.client("nobody") as client:
            assert (await client.get("/")).status_code == 401
            assert (await client.get("/no-such-path")).status_code == 401
        async with here.client() as client:
            told = (await client.get("/")).json()
            assert told["api"] == "/api/v1"
            assert (await client.get("/no-such-path")).status_code == 404


@looped
async def test_files_are_kept_for_ever_below_their_digest(tmp_path: Path, assets: Assets) -> None:
    async with world(tmp_path) as here, here.client("nobody") as client:
        here.here.assets = assets
        index = (await client.get("/", headers=HTML)).text
        (path,) = re.findall(r'src="([^"]+)"', index)
        answer = await client.get(path, headers={"Accept-Encoding": "gzip"})
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        plain = await client.get("/assets/main.js", headers={"Accept-Encoding": "gzip;q=0"})
        assert "content-encoding" not in plain.headers
        assert plain.headers["cache-control"] == "no-cache"
        assert plain.text == answer.text
        known = {"If-None-Match": f'"other", W/{plain.headers["etag"]}'}
        again = await client.get("/assets/main.js", headers=known)
        assert (again.status_code, again.content) == (304, b"")
        for wrong in ("/assets/0123456789abcdef/main.js", "/assets/"):
            assert (await client.get(wrong)).status_code == 404, wrong
        for wrong in ("/assets/%2e%2e/%2e%2e/errors.py", f"/assets/{assets.digest}/%2fetc/passwd"):
            assert (await client.get(wrong)).status_code == 404, wrong


def test_another_file_is_another_digest(folder: Path) -> None:
    before = Assets(folder)
    first = before.digest
    (folder / "parts" / "a.js").write_text("export const b = 1;")
    assert before.digest == first, "a server goes on with the files that it began with"
    assert Assets(folder).digest != first
    assert Assets(folder, reload=True).find("parts/a.js") is not None


def test_a_file_is_zipped_where_that_is_shorter(assets: Assets) -> None:
    main, small = assets.find("main.js"), assets.find("parts/a.js")
    assert main is not None
    assert small is not None
    assert gzip.decompress(main[0].zipped() or b"") == main[0].content
    assert small[0].zipped() is None


@looped
async def test_without_its_libraries_the_page_says_how_to_get_them(
    tmp_path: Path, folder: Path
) -> None:
    async with world(tmp_path) as here, here.client("nobody") as client:
        here.here.assets = Assets(folder)
        answer = await client.get("/", headers=HTML)
        assert answer.status_code == 200
        assert "python -m roost.web.vendor" in answer.text
        assert "<script" not in answer.text
