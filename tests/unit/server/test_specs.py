"""Job files as text and as a form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.server.worlds import looped, world

GOOD = """# the first try
name: birds
gpus: 2
run: |
  echo "# no comment"
labels: {team: vision}
"""


@looped
async def test_a_text_becomes_a_form_and_a_text_again(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:

        async def post(path: str, **body: Any) -> Any:
            answer = await client.post(f"/api/v1/specs:{path}", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        read = await post("parse", text=GOOD, name="birds.yaml")
        assert (read["ok"], read["errors"], read["comments"]) == (True, [], True)
        assert read["job"]["name"] == "birds"
        written = await post("render", job=read["job"])
        again = await post("parse", text=written["text"])
        assert again["job"] == read["job"]
        assert not again["comments"]
        assert "max_duration" not in written["text"]

        bad = await post("parse", text="name: x\n\nworkers: many\n  \ncolour: red\n")
        assert not bad["ok"]
        assert bad["job"] is None
        places = {(one["line"], one["column"], one["field"]) for one in bad["errors"]}
        assert {(3, 1, "workers"), (5, 1, "colour")} <= places
        for text in ("", "[", "a: [1", "&a [*a]", "<script>", "x: " + "[" * 5000):
            told = await post("parse", text=text)
            assert told["ok"] or told["errors"], text
        wrong = await post("render", job={"workers": "many"})
        assert (wrong["text"], wrong["errors"][0]["field"]) == ("", "workers")

        schema = (await client.get("/api/v1/specs/schema")).json()
        assert {"gpus", "resources", "queue", "run"} <= set(schema["properties"])
        assert schema["properties"]["queue"]["default"] == "default"


@looped
async def test_files_of_other_systems_come_with_notes(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        text = "#!/bin/bash\n#SBATCH --gres=gpu:2\n#SBATCH --mail-type=ALL\npython t.py\n"
        answer = await client.post("/api/v1/specs:parse", json={"text": text, "name": "t.sh"})
        assert answer.json()["ok"]
        assert answer.json()["notes"]
