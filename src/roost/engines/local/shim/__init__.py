"""The process that stands by each run: starts its workers, keeps their output, writes their end.

It outlives the server, so it imports nothing that is slow: the standard library, ``roost.elastic``
and ``roost.failpoints`` alone, under ``python -I -S``. The engine starts it with a lock (fd 3), the
run's folder (fd 4) and Roost's home (fd 5) open, and its order as JSON on standard input.

    __main__       reads the order, becomes the parent of whatever its workers leave behind
    supervisor     the loop: all workers or none, signals, time limits, the end
    members_file   the file that tells workers which of them train together
    worker         one process, and where its output goes
    spawn          from an order to a running worker
    output         log files with a limit, and what jobs say of themselves
    process_tree   descendants: find, signal, freeze, kill
    status         the records of a run, and datagrams to the server
    slot_file      small files written in place, which a full disk cannot prevent
    stdlib_subset  what is needed of modules that are slow to import
"""
