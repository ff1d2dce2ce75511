"""Gavel's benchmark: the cluster, the figures, and how near it comes to Gavel's own simulator."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from roost.errors import InvalidSpec, NotFound
from roost.policies.gavel import Gavel
from roost_bench.gavel import benchmark
from roost_bench.gavel.benchmark import PHYSICAL, GavelBench, find_trace, measure
from roost_bench.gavel.jobs import Mix

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("ROOST_DATA", ROOT.parent / "shared" / "data")) / "gavel"
LINE = "LM (batch size 5)\tpy x\tlm\t--steps\t1\t{}\t{}\t1\t-1.000000\t{}\n"
RATES = {
    "v100": {"('LM (batch size 5)', 1)": {"null": 10.0}},
    "p100": {"('LM (batch size 5)', 1)": {"null": 5.0}},
    "k80": {"('LM (batch size 5)', 1)": {"null": 1.0}},
}


@pytest.fixture
def data(tmp_path: Path) -> str:
    (tmp_path / "throughputs.json").write_text(json.dumps(RATES))
    lines = [LINE.format(36000, 1, 0), LINE.format(36000, 1, 0), LINE.format(36000, 1, 3600)]
    (tmp_path / "physical-x.trace").write_text("".join(lines))
    return str(tmp_path)


def test_a_cluster_is_nodes_of_each_kind(data: str) -> None:
    nodes = GavelBench(data, (12, 8, 0)).nodes()
    assert [(node.id, node.gpus) for node in nodes] == [("v100-0", 8), ("v100-1", 4), ("p100-0", 8)]
    for wrong in ((1, 2), (0, 0, 0)):
        with pytest.raises(InvalidSpec, match="36:36:36"):
            GavelBench(data, wrong)


def test_figures_by_hand(data: str) -> None:
    # Two V100: the first two jobs run for an hour, the third begins when they have ended.
    row = measure(GavelBench(data, (2, 0, 0), trace=find_trace(data, None)), "fifo")
    assert (row.jobs, row.workload) == (3, "physical-x")
    assert row.mean_jct_h == row.p99_jct_h == pytest.approx(1.0)
    assert row.makespan_h == pytest.approx(2.0)
    assert row.gpu_hours_per_job == pytest.approx(1.0)
    # Each could have had a GPU of its own all the time.
    assert [row.mean_rho, row.worst_rho] == pytest.approx([1.0, 1.0])


def test_rho_compares_with_an_equal_part(data: str) -> None:
    row = measure(GavelBench(data, (1, 0, 0), trace=find_trace(data, None)), "fifo")
    # In turn they take 1, 2 and 2 h. There are always two of them until the second ends at 2 h:
    # on half a V100 the first two would take 2 h, and the third 1 h of halves and half an hour.
    assert row.mean_jct_h == pytest.approx((1 + 2 + 2) / 3)
    assert row.worst_rho == pytest.approx(2 / 1.5)
    assert row.mean_rho == pytest.approx((1 / 2 + 2 / 2 + 2 / 1.5) / 3)


def test_slow_kinds_are_slow(data: str) -> None:
    row = measure(GavelBench(data, (0, 2, 0), trace=find_trace(data, None), limit=2), "fifo")
    assert row.mean_jct_h == pytest.approx(2.0)


def test_restarts_cost_what_they_cost(data: str) -> None:
    mix = Mix(jobs=12, jobs_per_hour=0.0)
    free, dear = (
        measure(GavelBench(data, (1, 1, 0), mix=mix, restart_s=restart_s), "las")
        for restart_s in (0.0, 600.0)
    )
    assert dear.preemptions > 0
    assert dear.mean_jct_h > free.mean_jct_h


def test_traces_are_found_by_path_and_by_name(data: str) -> None:
    path = f"{data}/physical-x.trace"
    assert (
        find_trace(data, None) == find_trace(data, "physical-x") == find_trace(data, path) == path
    )
    assert find_trace(data, None, needed=False) is None
    with pytest.raises(NotFound, match=r"no trace 'y'.*physical-x"):
        find_trace(data, "y")
    with pytest.raises(NotFound, match=r"no throughputs\.json"):
        find_trace("/nowhere", None)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no Gavel data in {DATA}")
class TestRealData:
    @pytest.fixture(autouse=True)
    def by_object(self, monkeypatch: pytest.MonkeyPatch) -> None:
        named = {"aware": Gavel(), "blind": Gavel(aware=False), "most": Gavel("max_sum")}
        monkeypatch.setattr(benchmark, "find_policy", named.__getitem__)

    def test_the_physical_trace_comes_out_as_in_gavels_own_simulator(self) -> None:
        """Gavel's simulator: 19 989 s for max-min fairness that takes all kinds for equal."""
        bench = GavelBench(str(DATA), PHYSICAL, trace=find_trace(str(DATA), None))
        blind = measure(bench, "blind")
        assert blind.jobs == 96
        assert blind.mean_jct_h == pytest.approx(19_989.3 / 3600, rel=0.05)
        assert blind.makespan_h == pytest.approx(77_141 / 3600, rel=0.1)

    def test_it_pays_to_know_the_kinds(self) -> None:
        bench = GavelBench(str(DATA), mix=Mix(jobs=60, jobs_per_hour=6.0))
        aware, blind = (measure(bench, name) for name in ("aware", "blind"))
        assert blind.mean_jct_h / aware.mean_jct_h > 1.3
        assert aware.worst_rho < 1.3 < blind.worst_rho
