"""Templates over the API: kept, filled in, submitted, counted."""

from __future__ import annotations

from pathlib import Path

from tests.support.wire_schema import strictly
from tests.unit.server.worlds import looped, world

from roost.api.templates import TemplateList
from roost.jobfile import parse


@looped
async def test_a_template_is_kept_filled_submitted_and_counted(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.add("ada")
        await here.add("bob")
        async with here.client("ada") as ada, here.client("bob") as bob:
            body = {
                "text": "run: python t.py --rate {{rate}}\n",
                "title": "<b>Birds</b>",
                "blanks": [{"name": "rate", "label": "Rate", "default": "0.1"}],
            }
            made = await ada.put("/api/v1/templates/birds", json=body)
            assert made.status_code == 200, made.text
            assert (await bob.put("/api/v1/templates/birds", json=body)).status_code == 403
            text = (
                await bob.post("/api/v1/templates/birds/fill", json={"values": {"rate": "0.5"}})
            ).json()["text"]
            document = parse(text, "x").job.document()
            assert document["run"] == "python t.py --rate 0.5"
            sent = await bob.post("/api/v1/jobs", json={"job": document})
            assert sent.status_code == 201, sent.text
            job = sent.json()["id"]
            await here.finish("bob", job)
            told = strictly(TemplateList, (await bob.get("/api/v1/templates")).json())
            birds = next(one for one in told.items if one.name == "birds")
            assert (birds.author, birds.shipped, birds.jobs) == ("ada", False, 1)
            assert birds.succeeded_at is not None
            own = (await ada.get("/api/v1/templates")).json()["items"]
            assert next(one for one in own if one["name"] == "birds")["jobs"] == 0
            wrong = await ada.post("/api/v1/templates/birds/fill", json={"values": {"rat": "1"}})
            assert wrong.status_code == 422
            assert "did you mean" in wrong.text or "rate" in wrong.text
            assert (await ada.post("/api/v1/templates/none/fill", json={})).status_code == 404
            assert (await ada.delete("/api/v1/templates/hello")).status_code == 403
            assert (await ada.delete("/api/v1/templates/birds")).status_code == 204
            bad = {"text": "colour: red"}
            answer = await ada.put("/api/v1/templates/bad", json=bad)
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["line"] == 1
