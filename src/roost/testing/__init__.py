"""What tests of Roost and of its plug-ins share.

==============  ==================================================================================
builders        the words of a test: ``node``, ``spec``, ``run``, ``held``, ``core_with``
engine          ``FakeEngine``: a world that answers when it is told to, and keeps the journal
checks          ``validate``: everything that a core keeps step by step, worked out again
journal         ``check_journal``: folding what was recorded gives the same actions and state
conformance     ``PolicyConformance``, ``PlacerConformance``: suites to subclass for a plug-in
policies        ``Scripted`` does as it is told, ``Restless`` leaves nothing alone
situations      small crowded workloads, each made to try one thing
faulty_engine   ``FaultyEngine``: all that can happen to a core
random_history  ``RandomHistory``: a long random run of it
replay          the same decisions, bit for bit, here and in another process
strategies      Hypothesis strategies for clusters, jobs and queues (needs ``hypothesis``)
==============  ==================================================================================
"""
