"""Job files as text and as a form: read, written and described on the server, the one truth."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from fastapi import APIRouter, Response

from roost.api.portal import ParsedSpec, RenderedSpec, SpecFault
from roost.api.schema import encode
from roost.jobfile import FieldError, JobFile, JobFileErrors, parse, to_yaml
from roost.jobfile.yaml import has_comments
from roost.server import requests
from roost.server.body import CheckedRoute
from roost.server.errors import answers
from roost.server.jobs import Here, Reader, json

router = APIRouter(prefix="/api/v1", tags=["specs"], route_class=CheckedRoute)


@router.post(
    "/specs:parse", response_model=ParsedSpec, responses=answers(), operation_id="parse_spec"
)
async def parse_spec(here: Here, _caller: Reader, body: requests.JobFileText) -> Response:
    """Read a job file, or one of another system; what is wrong is said with line and column."""
    return json(encode(await here.read(lambda: _parsed(body.text, body.name))))


@router.post(
    "/specs:render", response_model=RenderedSpec, responses=answers(), operation_id="render_spec"
)
async def render_spec(here: Here, _caller: Reader, body: requests.RenderSpec) -> Response:
    """Write a job as YAML, as a person would: in the order of the reference, without defaults."""
    return json(encode(await here.read(lambda: _rendered(body.job))))


@router.get(
    "/specs/schema",
    response_model=dict[str, Any],
    responses=answers(),
    operation_id="get_spec_schema",
)
async def get_spec_schema(_here: Here, _caller: Reader) -> Response:
    """JSON Schema of a job file, with titles and defaults."""
    return json(_schema())


def _parsed(text: str, name: str) -> ParsedSpec:
    try:
        found = parse(text, name)
    except JobFileErrors as problem:
        lines = text.splitlines()
        return ParsedSpec(ok=False, errors=tuple(_fault(one, lines) for one in problem.errors))
    document = {"name": found.job.name, **found.job.document()}
    return ParsedSpec(ok=True, job=document, notes=found.notes, comments=has_comments(text))


def _rendered(job: dict[str, Any]) -> RenderedSpec:
    try:
        return RenderedSpec(to_yaml(JobFile.from_document(job)))
    except JobFileErrors as problem:
        return RenderedSpec(errors=tuple(_fault(one, ()) for one in problem.errors))


def _fault(error: FieldError, lines: list[str] | tuple[str, ...]) -> SpecFault:
    """A fault with the column of its field, or of what stands first in its line."""
    line = lines[error.line - 1] if 0 < error.line <= len(lines) else ""
    key = error.field.rpartition(".")[2].partition("[")[0]
    at = line.find(f"{key}:") if key else -1
    if at < 0:
        at = len(line) - len(line.lstrip())
    return SpecFault(error.line, at + 1 if line else 0, error.field, error.message)


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    schema = JobFile.model_json_schema()
    # A short form of resources.gpu, which people write and the model takes apart.
    schema["properties"]["gpus"] = {
        "title": "Gpus",
        "description": "Short for resources.gpu: how many, of which kind, or which part of one.",
        "anyOf": [{"type": "number"}, {"type": "string"}],
    }
    return schema
