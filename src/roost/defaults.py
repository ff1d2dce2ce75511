"""Defaults of a server. Imports nothing, because help texts name them too."""

from __future__ import annotations

from typing import Final

#: Which job runs next.
POLICY: Final = "roost"
#: Where a job goes.
PLACER: Final = "compact"
#: The most jobs of one user that are not over.
USER_JOBS: Final = 10_000
#: The part of the disk that one user may fill.
USER_DISK: Final = "50%"
