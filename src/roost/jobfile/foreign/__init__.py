"""Job descriptions of other systems, converted into a job file; what is lost is said in notes.

One module per system: ``convert`` takes the text or its nodes and gives a ``Converted``.
"""

from roost.jobfile.foreign.source import Converted

__all__ = ["Converted"]
