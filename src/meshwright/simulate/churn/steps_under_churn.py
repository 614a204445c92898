"""Simulate step after step of a pipeline while its peers leave and join, for each routing.

``fixed``: each replica is a pipeline of its own. One that has lost a peer stands still until another one is in its
place, and begins the step's passes from their start; all replicas wait for each other at the end of a step. ``swarm``
and ``skip`` send micro-batches around lost peers (``step_events.py``).

A step in which nobody leaves or joins takes the same time whenever the same peers are there, so that it is simulated
once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from meshwright.simulate.churn.churn_trace import ChurnTrace
from meshwright.simulate.churn.peer_rebalancing import Rebalancing
from meshwright.simulate.churn.peer_routing import PlannedPaths, Router, WeightedRoundRobin
from meshwright.simulate.churn.peers import Peer, StageLoads, Work
from meshwright.simulate.churn.step_events import StepEvents

LONGEST = 100.0
"""A step that has not ended after so many undisturbed steps and absences of a peer is not followed any longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnSetting:
    """A pipeline of ``replicas`` peers a stage that each leave ``per_s`` times a second, for ``down_s`` seconds.

    ``passes_s``: the passes and messages of an undisturbed step. ``move_s``: how long a peer reads the states of a new
    stage. ``patterns``: the stages of SkipPipe's paths, which the micro-batches of a replica take in turns;
    ``compulsory`` stages are on all of them.
    """

    work: Work
    replicas: int
    micro_batches: int
    passes_s: float
    per_s: float
    down_s: float
    move_s: float = 0.0
    patterns: tuple[tuple[int, ...], ...] = ()
    compulsory: frozenset[int] = frozenset({0})

    @property
    def step_s(self) -> float:
        """Seconds of a step of the fixed pipeline in which nobody leaves."""
        return self.passes_s + self.work.tail_s

    @property
    def longest_s(self) -> float:
        """Seconds after which a step is not followed any longer."""
        return LONGEST * (self.step_s + self.down_s)

    def peers(self) -> list[Peer]:
        """Return the peers of all stages, equally many at each."""
        return [Peer(at, at // self.replicas) for at in range(self.replicas * self.work.stages)]

    def trace(self, seed: int) -> ChurnTrace:
        """Return the changes that follow from a seed."""
        return ChurnTrace(self.replicas * self.work.stages, self.per_s, self.down_s, seed)


@dataclass(frozen=True, slots=True)
class Steps:
    """So many steps took so long. A mean step is infinite if one of them did not end."""

    count: int
    seconds: float
    load_ratio: float

    @property
    def mean_s(self) -> float:
        """Seconds of a mean step."""
        return self.seconds / self.count if self.count else inf


Routing = Callable[[ChurnSetting, int, float], Steps]
"""(setting, seed, seconds to simulate at least) → the steps."""


def fixed(setting: ChurnSetting, seed: int, long_s: float) -> Steps:
    """Simulate pipelines that wait for the replacement of a lost peer."""
    trace, works = setting.trace(seed), [setting.work.stage_s(stage) for stage in range(setting.work.stages)]
    now, count, back = 0.0, 0, [0.0] * setting.replicas
    while not count or now < long_s:
        ends = [max(now, at) + setting.passes_s for at in back]
        while trace.next_s < max(ends):
            change = trace.pop()
            replica = change.peer % setting.replicas
            if not change.joins:
                back[replica] = max(back[replica], change.at_s + setting.down_s)
                ends[replica] = max(now, back[replica]) + setting.passes_s
            if change.at_s > now + setting.longest_s:
                return Steps(0, inf, 1.0)
        now, count = max(ends) + setting.work.tail_s, count + 1
    return Steps(count, now, max(works) * len(works) / sum(works))


def swarm(setting: ChurnSetting, seed: int, long_s: float) -> Steps:
    """Simulate SWARM: weighted routing, and peers that move to the most loaded stage."""
    router = WeightedRoundRobin(setting.work.stages, setting.replicas * setting.micro_batches)
    return RoutedSteps(setting, router, seed, Rebalancing(setting.work)).run(long_s)


def skip(setting: ChurnSetting, seed: int, long_s: float) -> Steps:
    """Simulate SkipPipe: paths that leave stages out."""
    router = PlannedPaths(planned_paths(setting), setting.work.stages, setting.compulsory)
    return RoutedSteps(setting, router, seed, None, in_order=False).run(long_s)


def planned_paths(setting: ChurnSetting) -> list[list[tuple[int, int]]]:
    """Return the (stage, peer) pairs of each micro-batch: the patterns in turns, each replica at its own peers."""
    patterns, replicas = setting.patterns, setting.replicas
    return [
        [(stage, stage * replicas + at % replicas) for stage in patterns[at // replicas % len(patterns)]]
        for at in range(replicas * setting.micro_batches)
    ]


ROUTINGS: Mapping[str, Routing] = MappingProxyType({"fixed": fixed, "swarm": swarm, "skip": skip})
"""Ways of a micro-batch around lost peers."""


class RoutedSteps:
    """Steps whose micro-batches are routed, on peers that may move between stages."""

    def __init__(
        self,
        setting: ChurnSetting,
        router: Router,
        seed: int,
        moves: Rebalancing | None,
        in_order: bool = True,
        peers: Sequence[Peer] | None = None,
    ) -> None:
        self._setting, self._router, self._moves, self._in_order = setting, router, moves, in_order
        self.peers = setting.peers() if peers is None else list(peers)
        self._home = [peer.stage for peer in self.peers]
        self._trace, self._away = setting.trace(seed), dict[int, tuple[float, int]]()
        self._known: dict[tuple[int, ...], tuple[float, StageLoads]] = {}
        self.now_s, self.loads = 0.0, StageLoads.zero(setting.work.stages)

    def run(self, long_s: float) -> Steps:
        """Simulate steps until so much time has passed."""
        count = 0
        while not count or self.now_s < long_s:
            self._between_steps()
            begin_s = self.now_s
            self.loads.add(self.step())
            if self.now_s > begin_s + self._setting.longest_s:
                return Steps(0, inf, 1.0)
            count += 1
        return Steps(count, self.now_s, self.loads.ratio)

    def step(self) -> StageLoads:
        """Simulate one step; return the loads of its passes."""
        even = len({(peer.stage, peer.speed) for peer in self.peers}) == self._setting.work.stages
        key = tuple(peer.stage if peer.up else -1 for peer in self.peers)
        known = self._known.get(key)
        if known is not None and self._trace.next_s >= self.now_s + known[0]:
            took_s, loads = known
        else:
            in_order = self._in_order and even and self._undisturbed
            events = StepEvents(
                self._setting.work, self.peers, self._router, self._trace, self._place, self.now_s, in_order
            )
            took_s, loads = events.run() - self.now_s, events.loads
            if even and not events.disturbed:
                self._known[key] = took_s, loads
        self.now_s += took_s + self._setting.work.tail_s
        if self._moves is not None:
            self._moves.add(loads)
        return loads

    @property
    def _undisturbed(self) -> bool:
        """Return true if every stage has all the peers that the plan gives it."""
        stages = sorted(peer.stage for peer in self.peers)
        return stages == sorted(self._home) and all(peer.up for peer in self.peers)

    def _between_steps(self) -> None:
        """Let peers leave and join that did so in the rest of the step, and move one."""
        while self._trace.next_s <= self.now_s:
            change = self._trace.pop()
            peer = self.peers[change.peer]
            if change.joins:
                peer.stage = self._place(peer)
            else:
                peer.lives += 1
            peer.up = change.joins
        for index, (until_s, life) in list(self._away.items()):
            if until_s <= self.now_s or self.peers[index].lives != life:
                self.peers[index].up = self.peers[index].up or self.peers[index].lives == life
                del self._away[index]
        moved = None if self._moves is None else self._moves.move(self.peers, self.now_s)
        if moved is not None and self._setting.move_s > 0:
            moved.up, moved.lives = False, moved.lives + 1
            self._away[moved.index] = self.now_s + self._setting.move_s, moved.lives

    def _place(self, peer: Peer) -> int:
        return self._home[peer.index] if self._moves is None else self._moves.stage_for(self.peers)
