"""Files of jobs over HTTP: parts, versions, and who may look."""

from __future__ import annotations

from pathlib import Path

from tests.unit.server.worlds import World, looped, world


async def running(
    here: World, tmp_path: Path, who: str = "root", **fields: str
) -> tuple[str, Path]:
    """A job that runs, and its working folder."""
    here.engine.folder = tmp_path / "runs"
    job = await here.submit(who, **fields)
    await here.until(who, job, "running")
    folder = tmp_path / "runs" / f"{job}#1"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "model.pt").write_bytes(bytes(range(256)) * 1000)
    return job, folder


@looped
async def test_parts_of_a_file(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        job, folder = await running(here, tmp_path)
        path = f"/api/v1/jobs/{job}/files/content?path=work/out/model.pt"
        whole = await client.get(path)
        body, tag = bytes(range(256)) * 1000, whole.headers["etag"]
        assert (whole.status_code, whole.content) == (200, body)
        assert whole.headers["content-disposition"] == "attachment"
        for wanted, start, end in (
            ("bytes=0-9", 0, 10),
            ("bytes=250000-", 250_000, 256_000),
            ("bytes=-5", 255_995, 256_000),
            ("bytes=255999-300000", 255_999, 256_000),
        ):
            answer = await client.get(path, headers={"Range": wanted, "If-Range": tag})
            assert answer.status_code == 206, wanted
            assert answer.content == body[start:end]
            assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/256000"
        beyond = await client.get(path, headers={"Range": "bytes=256000-"})
        assert beyond.status_code == 416
        for odd in ("bytes=x", "lines=1-2", "bytes=5-3,7-8"):
            assert (await client.get(path, headers={"Range": odd})).status_code == 200

        (folder / "out" / "model.pt").write_bytes(b"new")
        again = await client.get(path, headers={"Range": "bytes=2-", "If-Range": tag})
        assert (again.status_code, again.content) == (200, b"new")


@looped
async def test_pages_of_files(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        job, folder = await running(here, tmp_path)
        for number in range(5):
            (folder / f"{number}.txt").write_text("x")
        found: list[str] = []
        after = ""
        while True:
            asked = {"deep": "true", "limit": "3", "after": after}
            told = (await client.get(f"/api/v1/jobs/{job}/files", params=asked)).json()
            assert told["places"]["work"] == str(folder)
            found += [item["path"] for item in told["items"]]
            after = told["next"]
            if not after:
                break
        files = [f"work/{number}.txt" for number in range(5)]
        assert found == [*files, "work/out", "work/out/model.pt"]
        assert (await client.get(f"/api/v1/jobs/{job}/files?path=work/no")).status_code == 404
        odd = await client.get(f"/api/v1/jobs/{job}/files/content?path=work/../x")
        assert odd.status_code == 422


@looped
async def test_a_folder_that_a_user_names_is_that_users(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for name, role in (("ada", "user"), ("bob", "user"), ("vic", "viewer"), ("adm", "admin")):
            await here.add(name, role)
        own = tmp_path / "home"
        own.mkdir()
        (own / "diary").write_text("dear diary")
        here.engine.folder = tmp_path / "runs"
        job = await here.submit("ada", workdir=str(own))
        await here.until("ada", job, "running")
        path = f"/api/v1/jobs/{job}/files"
        for who, status in (("ada", 200), ("adm", 200), ("vic", 403), ("bob", 404)):
            async with here.client(who) as client:
                content = await client.get(f"{path}/content?path=work/diary")
                assert content.status_code == status, who
                assert (await client.get(f"{path}?path=work")).status_code == status
        async with here.client("vic") as client:
            assert (await client.get(path)).json()["items"] == []
