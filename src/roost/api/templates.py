"""Templates: job files with blanks."""

from __future__ import annotations

from dataclasses import dataclass

from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class BlankView(WireView):
    """A blank of a template: what to ask for, and what it is if nothing is given."""

    name: str
    label: str = ""
    default: str = ""


@dataclass(frozen=True, slots=True)
class TemplateView(WireView):
    """A template. ``shipped``: it comes with Roost. ``jobs`` of the caller were made from it."""

    name: str
    text: str
    title: str = ""
    description: str = ""
    blanks: tuple[BlankView, ...] = ()
    author: str = ""
    shipped: bool = False
    changed_at: float | None = None
    jobs: int = 0
    succeeded_at: float | None = None


@dataclass(frozen=True, slots=True)
class TemplateList(WireView):
    """All templates."""

    items: tuple[TemplateView, ...]
