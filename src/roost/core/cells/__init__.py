"""Cells: subtrees of the topology that queues are promised, and who has claimed which.

``promise`` has the words: what a queue is promised, as text and back. It imports nothing of the
vocabulary, for ``spec`` is built on it.
"""

from __future__ import annotations

from roost.core.cells.promise import CellPromise, format_promises, parse_promise, parse_promises

__all__ = ["CellPromise", "format_promises", "parse_promise", "parse_promises"]
