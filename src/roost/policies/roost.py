"""Roost's own policy: each GPU goes where it saves the most time, and a change has to pay.

Rigid jobs have their turns (``kit.turns``); where there are no others, that is all. Each job that
can change, and each rigid one that waits for its GPUs, is weighed in every size on every kind of
GPU (``prospects``), over a *window* of time: the usual time between arrivals, for which things stay
as they are. A decision is made when a job comes or goes and once a minute, in these steps:

1. Runs that stepped aside in an earlier decision go on where they were to go (``carry_on``).
2. Jobs with an open number of parameter servers are sized by ``kit.parameter_servers``.
3. ``contest`` says which jobs of uniform workers decide together. Rigid runs are left in peace.
   A share of a GPU that fits beside no other stands for the whole GPU that it would open.
4. The cost of each column (a size on a kind, or nothing) is worked out for each job, in seconds
   (``_Decision._cost``), and multiplied by the job's weight (``_weights``).
5. One column is chosen for each job, so that all fit and the sum of costs is least
   (``choose_by_prices``). Prices of GPUs come with the choice and are remembered.
6. The choice is made real with as little movement as possible (``assign``). If a waiting job finds
   no room after all, everything is taken back, and steps 5 and 6 are repeated without that job.
7. Rigid jobs and other shapes (roles, ``within``, shares beside others) have their turns with what
   is left, and rigid runs make room for those that count more.

A change of a running job is an investment. It costs a restart, and more than one, since what is
taken from others now will be asked for again, and it has to pay within the window. The time that
remains of the window after a restart is the same for all jobs, so that no job is shrunk to nothing
because its restart is long.

Short jobs count more: of jobs that scale alike, the mean completion time is least when the share of
each grows with its rank among them (heSRPT; Berg, Vesilo and Harchol-Balter, 2020). A job that will
be the last of all, even with all GPUs it can use, is not kept waiting for that. Queues keep their
limits, jobs within the quota of their queue run before others, and each step of priority counts
double.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from roost.core.plan import Plan
from roost.core.spec import JobId, Level, Resources
from roost.core.state import Job
from roost.errors import InvalidSpec
from roost.perf.arrays import Booleans, Integers, Reals
from roost.policies.kit.assignment import assign
from roost.policies.kit.contenders import (
    WEIGHED,
    AdaptableRuns,
    Contest,
    Owed,
    contest,
    next_able,
    priority,
    turn,
)
from roost.policies.kit.costs import restart_s
from roost.policies.kit.moves import Wish, capacity, carry_on, pending_moves, promised, standing
from roost.policies.kit.packing import Reaches, Room
from roost.policies.kit.parameter_servers.sizing import ParameterServerSizing, servers_vary
from roost.policies.kit.prospects import (
    IMPOSSIBLE,
    Prospects,
    usual_rate,
    worth,
)
from roost.policies.kit.sizes import SizeTable, gpu_caps, gpus_in_service, size_table
from roost.policies.kit.solvers.prices import choose_by_prices
from roost.policies.kit.speeds import start_if_idle
from roost.policies.kit.turns import Turns

_MEMO = "roost"
#: The last so many arrivals tell the usual time between arrivals; before, it is ``_FIRST_GAP_S``.
_ARRIVALS = 9
_FIRST_GAP_S = 600.0
#: The window is at most that long, however seldom jobs come.
_LONGEST_WINDOW_S = 3600.0
#: Seconds between two decisions, unless a job came or went.
_PAUSE_S = 1.0
#: Where jobs come and go all the time, so many are weighed a second, in the mean of ``_SPREE_S``.
_ROWS_PER_S = 400.0
_SPREE_S = 30.0
#: The usual number of jobs is a mean that forgets with this time constant.
_MEMORY_S = 1800.0
#: Seconds that it costs to let a job wait that is within the quota of its queue.
_QUOTA_COST_S = 1e6
#: Seconds that it costs to set aside a run that has to stay.
_STAY_COST_S = 1e9
#: A choice is made at most so often, each time without the jobs that found no room.
_TRIES = 3
#: The highest price of a GPU: seconds of waiting that it saves in each second.
_HIGHEST_PRICE = 1.0
#: The least weight, before priorities, of a job that will be the last of all.
_LAST_WEIGHT = 0.5
#: How much of the weight by rank counts where the work that is left is only guessed from the age.
_GUESSED_RANK = 0.4
#: Between the lowest and the highest priority there are at most so many doublings of weight.
_DOUBLINGS = 10.0
#: A waiting job loses at least this part of the window more than in its worst column.
_WAITING_LOSS = 0.2
#: The same of a rigid job for which there is room once elastic runs are as small as they can be.
#: It is more than any number of workers brings a run, and less than a dear restart of one costs.
_EASED_LOSS = 4.0
#: The part of their price that GPUs count for which are given back before the window ends: others
#: may not want them then.
_RETURNED = 0.5
_MINUTE_S = 60.0
#: As many jobs are named in a reason.
_NAMED = 2


@dataclass(slots=True)
class _Notes:
    """What is remembered between decisions. It is lost at a restart of the scheduler."""

    prospects: Prospects
    turns: Turns = field(default_factory=Turns)
    adaptable: AdaptableRuns = field(default_factory=AdaptableRuns)
    arrivals: list[float] = field(default_factory=list)
    #: The number of the last job that came, and how many there were.
    last: tuple[int, int] = (-1, 0)
    decided_at: float = -math.inf
    crowd: float = 1.0
    crowd_at: float = 0.0
    #: Until when decisions have used up what they may cost; see ``_ROWS_PER_S``.
    spent_until: float = -math.inf
    #: Seconds of waiting that one more GPU of a kind would save in each second.
    prices: dict[str, float] = field(default_factory=dict)

    def look(self, plan: Plan) -> bool:
        """Note which jobs came and went; returns whether any did."""
        now, new = plan.now, list[float]()
        newest = self.last[0]
        for job in reversed(plan.jobs.values()):
            if job.seq <= self.last[0] or len(new) == _ARRIVALS:
                break
            newest = max(newest, job.seq)
            new.append(job.submitted_at)
        self.arrivals = [*self.arrivals, *sorted(new)][-_ARRIVALS:]
        many = plan.waiting.count + sum(not run.job.waiting for run in plan.running)
        changed = (newest, many) != self.last
        self.last = (newest, many)
        # crowd <- a crowd + (1 - a) n  with  a = exp(-dt / memory), for n jobs after dt seconds.
        old = math.exp((self.crowd_at - now) / _MEMORY_S)
        self.crowd = max(1.0, old * self.crowd + (1.0 - old) * many)
        self.crowd_at = now
        return changed

    def gap_s(self, now: float) -> float:
        """The usual time between arrivals, or since the last one if that is longer."""
        times = self.arrivals
        if not times:
            return _FIRST_GAP_S
        gap = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else _FIRST_GAP_S
        return max(gap, now - times[-1])


@dataclass(frozen=True, slots=True)
class Roost:
    """Roost's own: each GPU goes where it saves the most time, and a change has to pay.

    ``library=no`` leaves out what other jobs of an application showed, and how much is left of a
    job by its epochs: what is then known is what Sia knows. The window is ``patience`` times the
    time between arrivals, and at least ``least_s``. ``toll`` is how many restarts a change of a run
    counts for, ``bend`` how much a pace beyond the usual one counts, ``rank`` how much more short
    jobs do. ``every_s`` is the time between decisions while nothing happens. ``probe_s`` is how
    long a job with parameter servers tries out each size; 0: none does. ``shares=no`` leaves
    shares of GPUs out of the choice: they are placed as they come, on what others leave.
    """

    resizes: ClassVar[bool] = True

    library: bool = True
    least_s: float = 120.0
    patience: float = 1.0
    toll: float = 3.0
    bend: float = 0.2
    rank: float = 0.6
    every_s: float = 60.0
    probe_s: float = 60.0
    shares: bool = True

    def __post_init__(self) -> None:
        """Refuse windows of nothing and changes for nothing."""
        if not (self.least_s > 0 and self.patience > 0 and self.every_s > 0):
            raise InvalidSpec("least_s, patience and every_s must be positive")
        if not (self.toll >= 0 and self.rank >= 0 and self.bend <= 1):
            raise InvalidSpec("toll and rank must not be negative, and bend at most 1")
        if not self.probe_s >= 0:
            raise InvalidSpec("probe_s must not be negative")

    def __call__(self, plan: Plan) -> None:
        """Weigh jobs that can change against each other; let others have their turns."""
        # 1. Finish earlier decisions.
        carry_on(plan)
        notes: _Notes = plan.memo.setdefault(_MEMO, _Notes(Prospects(self.library)))
        owed = notes.turns.prepare(plan)
        runs = notes.adaptable.look(plan)
        lines = [line for line in plan.waiting.open if line.adaptable or line.shape.roles]
        if not runs and not lines:
            notes.turns.serve(plan, owed)
            return
        # 2. Jobs with an open number of parameter servers.
        with_servers = [job for job in runs if servers_vary(job)]
        with_servers += [
            entry[2]
            for line in lines
            if line.shape.roles  # of others there may be very many
            for entry in line.entries
            if servers_vary(entry[2])
        ]
        if with_servers:
            ParameterServerSizing(self.every_s, self.probe_s).decide(plan, with_servers)
        # 3. to 6. Jobs of uniform workers that can change, and those that wait for their GPUs.
        changing = [job for job in runs if job.spec.uniform]
        if changing or any(line.head.spec.uniform for line in lines if line.entries):
            self._look(plan, notes, changing, owed)
        # 7. What is left, and what rigid runs make room for.
        with plan.ledger.hidden(promised(plan)):
            notes.turns.serve(plan, owed)

    def ignores(self, plan: Plan, job: Job) -> bool:
        """Whether a newcomer changes nothing: it is behind others that find no room either."""
        line = plan.waiting.line_of(job)
        if line.head is job or line.shape.roles or not plan.is_full(line):
            return False
        # Of jobs that can change, the first ones are weighed against each other.
        return not line.adaptable or all(entry[2] is not job for entry in line.entries[:WEIGHED])

    def _look(self, plan: Plan, notes: _Notes, runs: Sequence[Job], owed: Owed) -> None:
        """Decide, if there is a reason to."""
        plan.await_starts()
        changed, now = notes.look(plan), plan.now
        if now < notes.spent_until:
            plan.wake(notes.spent_until)
        elif changed or now >= notes.decided_at + _PAUSE_S:
            notes.decided_at = now
            self._decide(plan, notes, runs, owed)
        else:
            plan.wake(notes.decided_at + _PAUSE_S)
        start_if_idle(plan)

    def _decide(self, plan: Plan, notes: _Notes, runs: Sequence[Job], owed: Owed) -> None:
        notes.prospects.forget(plan)
        if not gpus_in_service(plan):
            return
        window = max(self.least_s, self.patience * min(notes.gap_s(plan.now), _LONGEST_WINDOW_S))
        kept = notes.turns.kept
        until = kept.line if kept is not None and kept.reservation is not None else None
        plan.wake(plan.now + self.every_s)
        plan.wake(next_able(plan, runs))
        part = contest(plan, runs, window, until, shares=self.shares)
        begun = max(notes.spent_until, plan.now - _SPREE_S)
        notes.spent_until = begun + len(part.jobs) / _ROWS_PER_S
        if part.jobs:
            _Decision(self, plan, notes, part, owed.names(), notes.last[1], window).make()


@dataclass(slots=True)
class _Decision:
    """One decision: costs in seconds of jobs (rows) by sizes on kinds (columns)."""

    policy: Roost
    plan: Plan
    notes: _Notes
    round: Contest
    owed: Collection[JobId]
    #: How many jobs there are: others are in motion, or left alone.
    many: int
    window: float
    jobs: list[Job] = field(init=False)
    table: SizeTable = field(init=False)
    held: dict[JobId, Wish] = field(init=False)
    current: Integers = field(init=False)
    reaches: Reaches = field(init=False)
    #: Columns that jobs with such needs cannot have.
    away: dict[tuple[Resources, Level | None, bool], Booleans] = field(default_factory=dict)
    #: Of each job: work per second by column, and seconds left at its usual rate.
    rates: list[Reals] = field(init=False)
    usual: list[float] = field(init=False)
    left: list[float] = field(init=False)

    def __post_init__(self) -> None:
        """Look at what is in service, and at what each job holds."""
        self.jobs = self.round.jobs
        self.table = size_table(self.plan, self.jobs)
        self.held = standing(self.plan, {job.id for job in self.jobs})
        self.reaches = Reaches(self.plan.ledger)
        self.current = np.array([self._column(job) for job in self.jobs])
        prospects, table = self.notes.prospects, self.table
        # The even share: GPUs in service over the usual number of jobs.
        share = max(1.0, sum(kind.total for kind in table.kinds) / self.notes.crowd)
        self.rates = [prospects.rates(job, table) for job in self.jobs]
        self.usual = [usual_rate(row, table, share) for row in self.rates]
        self.left = [
            prospects.left_s(job, rate, self.plan.now) if rate else 0.0
            for job, rate in zip(self.jobs, self.usual, strict=True)
        ]

    def make(self) -> None:
        """Choose, and make it real."""
        table, plan = self.table, self.plan
        room = capacity(plan, [job.id for job in self.jobs])
        nodes = [room.get(kind.name, []) for kind in table.kinds]
        total = np.array([sum(gpus) for gpus in nodes])
        rooms = [Room(gpus, kind.per_node) for gpus, kind in zip(nodes, table.kinds, strict=True)]
        # 4. What each column costs each job; a column larger than the room of its kind is out.
        known = np.array([self.notes.prices.get(kind.name, 0.0) for kind in table.kinds])
        cost = self._costs(known)
        cost[:, np.append(table.gpus[:-1] > total[table.kind[:-1]], np.False_)] = IMPOSSIBLE
        # 5. and 6. Choose, and make it real; again without the jobs that found no room.
        for _ in range(_TRIES):
            chosen, prices = choose_by_prices(
                cost,
                table.kind,
                table.gpus,
                total,
                self.current,
                lambda kind, gpus: rooms[kind].fits(gpus),
                known * self.window,
            )
            in_vain = self._assign(chosen)
            if not in_vain:
                break
            cost[in_vain, :-1] = IMPOSSIBLE
        part = len(self.jobs) / self.many
        for kind, old, price in zip(table.kinds, known, prices / self.window, strict=True):
            # While most jobs are in motion, the price of the others says little: with a part f of
            # the jobs deciding, price <- price + (new - price) f / 2.
            new = min(float(price), _HIGHEST_PRICE)
            self.notes.prices[kind.name] = float(old) + (new - float(old)) * part / 2.0
        for row, job in enumerate(self.jobs):
            # 7. It may fit on several kinds at once, or beside others: the placer knows.
            if job.waiting and (
                job.spec.resources.needs_more_than_gpus or cost[row, :-1].min() >= IMPOSSIBLE
            ):
                plan.place(job)
            elif job.waiting and job.spec.elastic:
                line = plan.waiting.line_of(job)
                if line.head is job and line not in plan.said:
                    plan.say(line, "others make more of the GPUs for now")

    def _assign(self, chosen: Integers) -> list[int]:
        """Make a choice real, or take it back and return the rows of jobs that found no room.

        A job may need more than GPUs, and a gang more than a number of them. If such a job cannot
        start after all, nothing is taken from others for it. While runs are on their way to other
        nodes, waiting jobs find their places once these have left.
        """
        if not (chosen != self.current).any():
            return []
        plan, none = self.plan, self.table.none
        mark, under_way = plan.mark(), dict(pending_moves(plan))
        assign(plan, self._wishes(chosen), self._reasons(chosen))
        in_vain = [row for row, job in enumerate(self.jobs) if job.waiting and chosen[row] != none]
        in_vain = [row for row in in_vain if self.current[row] == none]
        leave = bool(((chosen == none) & (self.current != none)).any())
        moved = pending_moves(plan).keys() != under_way.keys()
        if not in_vain or plan.mark() == mark or (moved and not leave):
            return []
        plan.undo(mark)
        pending_moves(plan).clear()
        pending_moves(plan).update(under_way)
        return in_vain

    # -- costs ---------------------------------------------------------------------------------

    def _costs(self, prices: Reals) -> Reals:
        table, left = self.table, self.left
        fastest = [
            seconds * rate / row.max() if rate else 0.0
            for seconds, rate, row in zip(left, self.usual, self.rates, strict=True)
        ]
        # A rank that is guessed from the age of a job is worth less than one by its epochs.
        rank = self.policy.rank * (1.0 if self.policy.library else _GUESSED_RANK)
        weights = _weights(self.jobs, left, fastest, self.notes.crowd, rank)
        self._ease(weights)
        pull = prices[table.kind] * table.gpus
        most, waited = gpu_caps(self.jobs, self.held), self._waited()
        cost = np.full((len(self.jobs), len(table.kind)), IMPOSSIBLE)
        for row, job in enumerate(self.jobs):
            if self.usual[row]:
                pace = self.rates[row] / self.usual[row]
                pace[(table.gpus > most[job.id]) | self._out_of_reach(job)] = 0.0
                now = int(self.current[row])
                cost[row] = self._cost(job, pace, left[row], now, pull, waited.get(job.id, 0.0))
                cost[row][cost[row] < IMPOSSIBLE] *= weights[row]
            else:
                cost[row, -1] = 0.0
            if job.id in self.owed:
                cost[row, -1] += _QUOTA_COST_S
            if job.id in self.round.stay:
                cost[row, -1] += _STAY_COST_S
        return cost

    def _ease(self, weights: Reals) -> None:
        """Let no elastic run keep more than its least from a rigid job that counts as much.

        What one more worker saves a run is no reason to let another job have none.
        """
        above = {priority(job): 0.0 for job in self.jobs}
        for level in above:
            above[level] = max(
                weight
                for job, weight in zip(self.jobs, weights.tolist(), strict=True)
                if priority(job) <= level
            )
        for row, job in enumerate(self.jobs):
            if job.id in self.round.eased:
                weights[row] = above[priority(job)]

    def _out_of_reach(self, job: Job) -> Booleans:
        """Columns that a job could not have of an empty cluster, where GPUs alone do not tell."""
        table, spec = self.table, job.spec
        if not spec.resources.needs_more_than_gpus:
            return np.zeros(len(table.kind), dtype=bool)
        same = (spec.resources, spec.within, spec.elastic)
        away = self.away.get(same)
        if away is None:
            away = self.away[same] = np.zeros(len(table.kind), dtype=bool)
            for kind in table.kinds:
                away[kind.columns] = [
                    not self.reaches.holds(job, kind.name, gpus // spec.resources.gpus)
                    for gpus in kind.gpus.tolist()
                ]
        return away

    def _waited(self) -> dict[JobId, float]:
        """Seconds that jobs have waited; none counts longer than one of a higher priority."""
        found: dict[JobId, float] = {}
        longest, level, above = math.inf, math.inf, 0.0
        for job in sorted((job for job in self.jobs if job.waiting), key=turn):
            if priority(job) < level:
                longest, level = (above if found else math.inf), priority(job)
            found[job.id] = min(self.plan.now - job.queued_at, longest)
            above = max(above, found[job.id])
        return found

    def _cost(  # noqa: PLR0913 - what is known of a job
        self, job: Job, pace: Reals, left: float, current: int, pull: Reals, waited: float
    ) -> Reals:
        """What each column costs a job: seconds by which it ends later, up to a constant.

        With R the cost of a restart, W the window and L the seconds that are left of the job at
        its usual pace:

            T = R for a waiting job, toll R for a run     what a change costs
            H = W + T                                     how far the decision looks
            w = T, or 0 in the column that it has         seconds without work
            e = w + L / pace                              when it ends
            m = pace (H - w) / H                          its mean pace until H

        A job that ends later than H costs H + L - H worth(m). One that ends before costs
        e + L - H worth(L / H), which is the same for e = H, and gives its GPUs back H - e seconds
        early: half of their price (``pull``) counts for it. To wait costs the whole of H + L + R,
        at least a fifth of H more than the worst column (4 H for a rigid job that elastic runs can
        make room for by shrinking), and the seconds it has ``waited``. All is
        scaled by W / H, so that a long restart does not make a job heavier than others.
        """
        restart, none = restart_s(job), self.table.none
        toll = restart if current == none else restart * self.policy.toll
        whole = self.window + toll
        wait = np.full(len(pace), toll)
        if current != none:
            wait[current] = 0.0
        possible = pace > 0
        ends = wait + left / np.where(possible, pace, 1.0)
        mean = pace * (whole - wait) / whole
        bend = self.policy.bend
        early = ends + left - whole * worth(np.full(1, left / whole), bend)
        cost = np.where(ends <= whole, early, whole + left - whole * worth(mean, bend))
        worst = float(cost[possible].max(initial=0.0))
        if job.spec.training is not None or job.run_time_s is not None:
            cost -= _RETURNED * pull * (whole - np.minimum(ends, whole))
        cost[~possible] = IMPOSSIBLE
        # A job that has waited long is let in before shorter ones.
        loss = _EASED_LOSS if job.id in self.round.eased else _WAITING_LOSS
        cost[none] = max(whole + left + restart, worst + loss * whole) + waited
        possible[none] = True
        cost[possible] *= self.window / whole
        if job.run is not None and current != none:
            # The part of a restart beyond the window counts in full: (R - W) pace.
            beyond, lost = max(0.0, restart - self.window), job.run.unsaved_s(self.plan.now)
            possible[current] = False
            cost[possible] += beyond * float(pace[current])
            # Work since the last checkpoint is lost; elastic jobs take their state with them,
            # unless they have to leave.
            possible[:none] &= not job.spec.elastic
            cost[possible] += lost * float(pace[current])
        return cost

    # -- wishes --------------------------------------------------------------------------------

    def _column(self, job: Job) -> int:
        held = self.held.get(job.id)
        if held is None:
            return self.table.none
        found = self.table.column(held.kind, held.workers * max(job.spec.resources.gpus, 1))
        return self.table.none if found is None else found

    def _wishes(self, chosen: Integers) -> dict[JobId, Wish | None]:
        wishes: dict[JobId, Wish | None] = {}
        for job, now, column in zip(self.jobs, self.current, chosen, strict=True):
            if column != now:
                wishes[job.id] = self._wish(job, int(column))
            elif job.id in self.held:
                wishes[job.id] = self.held[job.id]
        return wishes

    def _wish(self, job: Job, column: int) -> Wish | None:
        if column == self.table.none:
            return None
        kind = self.table.kinds[int(self.table.kind[column])].name
        return Wish(kind, int(self.table.gpus[column]) // max(job.spec.resources.gpus, 1))

    def _reasons(self, chosen: Integers) -> Mapping[JobId, str]:
        """Why runs change, in words."""
        found, none = {}, self.table.none
        new = [
            job.id
            for job, before, after in zip(self.jobs, self.current, chosen, strict=True)
            if before == none != after
        ]
        for row, job in enumerate(self.jobs):
            before, after = int(self.current[row]), int(chosen[row])
            wish = self._wish(job, after)
            if before in (after, none):
                continue
            if wish is None:
                found[job.id] = _listed(new)
            else:
                size = f"{wish.workers} on {wish.kind}" if wish.kind else f"{wish.workers}"
                found[job.id] = f"to {size}: {self._gain(row, before, after)}"
        return found

    def _gain(self, row: int, before: int, after: int) -> str:
        """What a change brings a job, and what it costs, in words."""
        job, slow, fast = self.jobs[row], self.rates[row][before], self.rates[row][after]
        if fast <= slow:
            return "others make more of what it held"
        price = f"costs {restart_s(job):.0f} s"
        if not self.notes.prospects.knows_end(job, self.plan.now):
            return f"{fast / slow:.1f} times as fast, {price}" if slow else price
        saved = self.left[row] * self.usual[row] * (1.0 / slow - 1.0 / fast)
        return f"saves {saved / _MINUTE_S:.0f} min, {price}"


def _listed(names: Sequence[JobId]) -> str:
    """Some names, and how many more."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _weights(
    jobs: Sequence[Job],
    left: Sequence[float],
    fastest: Sequence[float],
    crowd: float,
    rank: float,
) -> Reals:
    """The weight of each job: short jobs count more, and each step of priority doubles.

    Of J jobs, the one with most work left has rank 1: its weight is ((2 rank - 1) / J) ** ``rank``
    (after heSRPT). Work is ``left`` in seconds with an even share of the cluster, which ``crowd``
    jobs have at once; ``fastest`` is the same with all GPUs that a job can use. A job with
    fastest > sum(left) / crowd will be the last of all.
    """
    # Of two jobs that seem equally long, the one that came first counts as the shorter.
    longest = sorted(range(len(left)), key=lambda row: (-left[row], -jobs[row].seq))
    order = np.empty(len(left))
    order[longest] = np.arange(1, len(left) + 1)
    weights = ((2 * order - 1) / len(left)) ** rank
    # By then all others will be done: to let them go first only delays the end of all.
    last = np.array(fastest) > sum(left) / crowd
    weights[last] = np.maximum(weights[last], _LAST_WEIGHT)
    steps = np.array([priority(job) for job in jobs], dtype=float)
    steps -= steps.min()
    return np.asarray(weights * 2.0 ** (steps * min(1.0, _DOUBLINGS / max(steps.max(), 1.0))))
