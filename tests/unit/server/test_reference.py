"""What the server has, its reference names: routes, permissions, options, figures."""

from __future__ import annotations

import re
from pathlib import Path

import click
from fastapi.routing import APIRoute
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.server.worlds import looped, world

from roost.cli.up import up
from roost.server.permissions import declared
from roost.server.roles import RoutePermission

PAGE = (Path(__file__).parents[3] / "docs" / "server.md").read_text(encoding="utf-8")
CODE = set(re.findall(r"`([^`\n]+)`", PAGE))


@looped
async def test_every_route_is_listed_with_its_permission(tmp_path: Path) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) [^`]+)`", "\n".join(rows)))
    found = set()
    async with world(tmp_path) as here:
        for route in here.app.routes:
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                found.add(f"{method} {route.path}")
                (row,) = (line for line in rows if f"`{method} {route.path}`" in line)
                permission = declared(route)
                assert permission is not None
                last = row.rstrip(" |").rpartition("|")[2]
                assert permission in last, row
    assert found == listed
    assert all(permission in PAGE for permission in RoutePermission)


@looped
async def test_every_figure_is_listed(tmp_path: Path) -> None:
    async with world(tmp_path) as here, here.client() as client:
        text = (await client.get("/metrics")).text
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        assert name in CODE, name


def test_every_option_is_listed() -> None:
    for parameter in up.params:
        if isinstance(parameter, click.Option):
            for spelling in parameter.opts:
                assert spelling in CODE, spelling
