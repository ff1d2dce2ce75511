"""The machine of a server, and how a client finds out whether it is its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from roost.api.schema import WireView


@dataclass(frozen=True, slots=True)
class MachineView(WireView):
    """A machine: since when it runs, as a digest, and a file that only the same one has."""

    boot: str = field(default="", metadata={"description": "Names this start of the machine."})
    path: str = field(default="", metadata={"description": "A file in the home of the server."})
    nonce: str = field(default="", metadata={"description": "What stands in that file."})
    takes_folders: bool = field(
        default=False, metadata={"description": "Whether folders can be sent to this server."}
    )
