"""How events change the state: one function per event, one module per group of them.

``dispatch.fold`` is the way in. Each fold says whether the event may change a decision. It raises
``Conflict`` or ``NotFound`` before it changes anything, where an event cannot be.
"""
