"""Templates: job files with blanks, shipped and of the team."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Response

from roost.api.portal import RenderedSpec
from roost.api.schema import encode, project
from roost.api.templates import BlankView, TemplateList, TemplateView
from roost.errors import Conflict, unknown
from roost.jobfile import to_yaml
from roost.jobs.templates import BUILT_IN, LABEL, NAME, JobTemplate, TemplateBlank, filled
from roost.server import requests
from roost.server.auth import Caller
from roost.server.backend import TemplateBackend
from roost.server.body import CheckedRoute
from roost.server.context import Context
from roost.server.errors import answers
from roost.server.jobs import Here, Reader, Writer, json
from roost.server.permissions import sees_all
from roost.server.roles import ROLES, RoutePermission
from roost.store.rows import JobQuery

router = APIRouter(prefix="/api/v1", tags=["templates"], route_class=CheckedRoute)

TemplateName = Annotated[str, Path(pattern=f"^{NAME}$")]


@router.get(
    "/templates", response_model=TemplateList, responses=answers(), operation_id="list_templates"
)
async def list_templates(here: Here, caller: Reader) -> Response:
    """All templates, with how many jobs the caller sees that were made from each."""
    return json(encode(await here.read(lambda: _listed(here, caller))))


@router.put(
    "/templates/{template}",
    response_model=TemplateView,
    responses=answers(409, 507),
    operation_id="set_template",
)
async def set_template(
    here: Here, caller: Writer, template: TemplateName, body: requests.SetTemplate
) -> Response:
    """Make a template, or change one of one's own; the text is a job file in any format."""
    blanks = tuple(TemplateBlank(one.name, one.label, one.default) for one in body.blanks)
    made = JobTemplate(
        template,
        body.text,
        body.title,
        body.description,
        blanks,
        caller.user,
        here.cluster.now(),
    )
    kept = _kept(here)
    found = await here.read(lambda: kept.set(made, anyones=_is_admin(caller)))
    return json(encode(_view(found)))


@router.delete(
    "/templates/{template}",
    status_code=204,
    response_class=Response,
    responses=answers(404, 409, 507),
    operation_id="delete_template",
)
async def delete_template(here: Here, caller: Writer, template: TemplateName) -> Response:
    """Forget a template of one's own; one that is shipped stays."""
    kept = _kept(here)
    await here.read(lambda: kept.delete(template, caller.user, anyones=_is_admin(caller)))
    return Response(status_code=204)


@router.post(
    "/templates/{template}/fill",
    response_model=RenderedSpec,
    responses=answers(404),
    operation_id="fill_template",
)
async def fill_template(
    here: Here, _caller: Reader, template: TemplateName, body: requests.FillTemplate
) -> Response:
    """The job file of a template with some of its blanks filled; it carries a label."""

    def fill() -> RenderedSpec:
        found = next((one for one in _all(here) if one.name == template), None)
        if found is None:
            raise unknown("template", template, [one.name for one in _all(here)])
        return RenderedSpec(to_yaml(filled(found, body.values).job))

    return json(encode(await here.read(fill)))


def _is_admin(caller: Caller) -> bool:
    return RoutePermission.CLUSTER_WRITE in ROLES[caller.role]


def _kept(here: Context) -> TemplateBackend:
    if here.cluster.templates is None:
        raise Conflict("no templates are kept here; those that are shipped can be used")
    return here.cluster.templates


def _all(here: Context) -> Sequence[JobTemplate]:
    return BUILT_IN if here.cluster.templates is None else here.cluster.templates.all()


def _listed(here: Context, caller: Caller) -> TemplateList:
    return TemplateList(tuple(_used(here, caller, one) for one in _all(here)))


def _used(here: Context, caller: Caller, template: JobTemplate) -> TemplateView:
    jobs, users = here.cluster.store.jobs, () if sees_all(caller) else (caller.user,)
    labels = {LABEL: template.name}
    made = jobs.find(JobQuery(users=users, labels=labels, limit=1)).total
    good = JobQuery(users=users, labels=labels, states=("succeeded",), sort="-finished_at", limit=1)
    last = jobs.find(good).items if made else ()
    return _view(template, made, last[0].finished_at if last else None)


def _view(template: JobTemplate, jobs: int = 0, succeeded_at: float | None = None) -> TemplateView:
    return project(
        TemplateView,
        template,
        blanks=tuple(project(BlankView, blank) for blank in template.blanks),
        shipped=not template.author,
        changed_at=template.changed_at or None,
        jobs=jobs,
        succeeded_at=succeeded_at,
    )
