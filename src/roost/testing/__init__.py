"""For tests of Roost and of plug-ins: builders, checks, a fake engine, conformance suites.

==============  ==================================================================================
builders        the words of a test: ``node``, ``spec``, ``run``, ``held``, ``core_with``
engine          ``FakeEngine``: a world that answers when a test says so, and keeps the journal
faulty_engine   ``FaultyEngine``: a fake engine with everything that can happen to a core
random_history  ``RandomHistory``: a long random run of a faulty engine
checks          ``validate``: works out again everything that a core keeps step by step
journal         ``check_journal``: folding what was recorded gives the same actions and state
conformance     ``PolicyConformance``, ``PlacerConformance``: suites to subclass for a plug-in
stores          ``StoreConformance``: the suite for a database
promises        ``PromiseWalk``: random histories in which promises of cells must be kept
policies        ``Scripted`` does as a test says, ``Restless`` leaves nothing alone
situations      small crowded workloads, each made to try one thing
replay          the same decisions, bit for bit, here and in another process
strategies      Hypothesis strategies for clusters, jobs and queues (needs ``hypothesis``)
==============  ==================================================================================

These modules, and in each the names of its ``__all__``, are the public surface.
"""

__all__ = [
    "builders",
    "checks",
    "conformance",
    "engine",
    "faulty_engine",
    "journal",
    "policies",
    "promises",
    "random_history",
    "replay",
    "situations",
    "stores",
    "strategies",
]
