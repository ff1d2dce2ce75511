"""Job descriptions of other systems, converted into a job file; what is lost is said in notes.

One module per system: ``convert`` takes the text or its nodes and gives a ``Conversion``.
"""

from roost.jobfile.foreign.conversion import Conversion

__all__ = ["Conversion"]
