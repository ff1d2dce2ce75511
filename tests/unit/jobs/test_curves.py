from __future__ import annotations

import math

from roost.jobs.curves import (
    AllocationNote,
    CurveLog,
    CurvePoint,
    CurveWindow,
    curves_view,
    figures_line,
    figures_of,
    note_line,
    thinned,
)

VIEW = {"workers": {"now": 2}, "gpus_held": 2.0, "loss": math.nan, "step": 7, "busy": 0.5}


def test_thinning_keeps_peaks_gaps_and_the_order_of_time() -> None:
    points = [CurvePoint(float(n), math.sin(n / 50)) for n in range(10_000)]
    points[1234] = CurvePoint(1234.0, 99.0)
    points[7777] = CurvePoint(7777.0, -99.0)
    points[5000] = CurvePoint(5000.0, None)
    few = thinned(points, 100)
    assert len(few) <= 104
    assert {CurvePoint(1234.0, 99.0), CurvePoint(7777.0, -99.0), CurvePoint(5000.0, None)} <= {*few}
    assert few == sorted(few, key=lambda point: point.time)
    assert thinned(points[:50], 100) == points[:50]
    assert thinned([CurvePoint(1.0, float(n)) for n in range(9)], 2) == [(1.0, 0.0), (1.0, 8.0)]


def test_a_log_is_read_as_it_was_written_and_nonsense_is_left_out() -> None:
    note = AllocationNote(1.0, "running", 1, 2, 2.0, 1.0, ({"node": "a", "gpus": [0]},))
    lines = [
        note_line(note),
        figures_line(2.0, {"loss": 0.5, "step": 3}),
        '[3.0,{"loss"',
        "[4.0]",
        '["x",{"a":1}]',
        '[5.0,{"loss":"<script>"}]',
        '[6.0,null,{"unknown":1}]',
        "null",
    ]
    log = CurveLog()
    for line in lines:
        log.add(line)
    assert log.notes == [note]
    assert log.points == {"loss": [(2.0, 0.5)], "step": [(2.0, 3.0)]}
    again = CurveLog()
    for line in log.lines():
        again.add(line)
    assert again == log


def test_what_is_not_reported_is_not_there() -> None:
    assert figures_of(VIEW) == {"step": 7, "busy": 0.5, "workers": 2, "gpus": 2.0}


def test_a_time_in_which_a_job_does_not_run_is_a_gap() -> None:
    log = CurveLog()
    for at in (0.0, 1.0, 8.0, 9.0):
        log.add(figures_line(at, {"loss": at, "aux": 1.0}))
    log.add(note_line(AllocationNote(2.0, "suspended")))
    view = curves_view("j", log, CurveWindow(), 10.0)
    assert [series.name for series in view.series] == ["loss", "aux"]
    assert view.series[0].points == ((0, 0), (1, 1), (2, None), (8, 8), (9, 9))
    part = curves_view("j", log, CurveWindow(5.0, 8.5, names=("loss", "none")), 10.0)
    assert [(series.name, series.points) for series in part.series] == [("loss", ((8, 8),))]
    assert curves_view("j", CurveLog(), CurveWindow(), 10.0).series == ()
