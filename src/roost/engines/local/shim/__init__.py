"""The process that stands by each run: starts its workers, keeps their output, writes their end.

It outlives the server, so it imports nothing of Roost and nothing that is slow: the standard
library alone, under ``python -I -S``. The engine starts it with a lock (fd 3), the run's folder
(fd 4) and Roost's home (fd 5) open, and its order as JSON on standard input. ``turnover``,
``change`` and ``roll`` ask no clock and touch no process: the operator in a cluster uses them too.

    __main__  reads the order, becomes the parent of whatever its workers leave behind
    gang      the loop: all workers or none, signals, time limits, the end
    turnover  how members come and go: by order, or by loss
    change    one change of members, step by step
    roll      who trains together, and what is believed of what they say
    members   the file that tells workers so
    company   what changes need of those who can start and end workers (types alone)
    worker    one process, and where its output goes
    spawn     from an order to a running worker
    output    log files with a limit, and what jobs say of themselves
    tree      descendants: find, signal, freeze, kill
    hints     the records of a run, and the server's ear
    record    small files written in place, which a full disk cannot prevent
    light     what is needed of modules that are slow to import
"""
