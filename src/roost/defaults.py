"""What is done where nobody says otherwise. It imports nothing: a help text needs it, too."""

from __future__ import annotations

from typing import Final

#: Who runs next on a server.
POLICY: Final = "roost"
