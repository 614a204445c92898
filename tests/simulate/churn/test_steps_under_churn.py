"""Routing around lost peers: equal to the simulator without churn, the same batch with it, loads that converge."""

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from uniform_pipeline import uniform

from meshwright.simulate.churn.churn_trace import ChurnTrace
from meshwright.simulate.churn.peer_rebalancing import Rebalancing
from meshwright.simulate.churn.peer_routing import PlannedPaths, WeightedRoundRobin
from meshwright.simulate.churn.peers import Peer
from meshwright.simulate.churn.step_events import StepEvents
from meshwright.simulate.churn.steps_under_churn import (
    ROUTINGS,
    RoutedSteps,
    fixed,
    planned_paths,
    skip,
    swarm,
)
from meshwright.simulate.churn.work_of_program import program_work
from meshwright.simulate.simulator import simulate

sys.path.append(str(Path(__file__).parents[1]))
from pipeline_programs import GivenPrices, plain_program


@pytest.mark.parametrize("seed", range(20))
def test_swarm_without_churn_takes_the_time_of_the_simulated_step(seed):
    draw = random.Random(seed)
    stages, micro_batches, replicas = draw.randint(2, 6), draw.randint(1, 9), draw.randint(1, 4)
    program = plain_program(draw.choice(["1f1b", "gpipe"]), stages, micro_batches)
    program = replace(program, stack=replace(program.stack, overlap_p2p=draw.random() < 0.5))
    seconds = {(stage, kind): draw.uniform(1, 3) for stage in range(stages) for kind in "FB"}
    prices = GivenPrices(seconds, draw.choice([0.0, 0.1, 1.0, 4.0]))
    setting = uniform(stages, replicas, micro_batches)
    setting = replace(setting, work=program_work(program, prices))
    assert swarm(setting, seed, 0.0).mean_s == pytest.approx(simulate(program, prices).step_s, rel=1e-12)


def test_all_routings_have_the_same_step_without_churn_and_without_skipped_stages():
    setting = uniform(patterns=((0, 1, 2, 3),))
    assert fixed(setting, 0, 100.0).mean_s == swarm(setting, 0, 100.0).mean_s
    assert skip(setting, 0, 100.0).mean_s == pytest.approx(setting.step_s)


class Counting:
    """A router that counts the passes that end at each stage."""

    def __init__(self, router):
        self.router, self.ended = router, {}

    def __getattr__(self, name):
        return getattr(self.router, name)

    def measured(self, peer, slowness):
        self.ended[peer.stage] = self.ended.get(peer.stage, 0) + 1


@pytest.mark.parametrize("seed", range(10))
def test_lost_peers_cost_passes_and_no_micro_batch_is_left_out(seed):
    setting = uniform(per_s=1 / 300)
    router = Counting(WeightedRoundRobin(4, 32))
    trace = setting.trace(seed)
    events = StepEvents(setting.work, setting.peers(), router, trace, lambda peer: peer.stage)
    end_s = events.run()
    assert all(count >= 2 * 32 for count in router.ended.values())
    assert len(router.ended) == 4
    assert end_s >= setting.passes_s - 1e-9
    assert events.disturbed == (trace.next_s != setting.trace(seed).next_s)


def test_micro_batches_go_to_peers_in_proportion_to_their_throughput():
    router, peers = WeightedRoundRobin(1, 0), [Peer(0, 0), Peer(1, 0, 0.5), Peer(2, 0, 0.25)]
    for peer in peers:
        for _ in range(200):
            router.measured(peer, 1 / peer.speed)
    chosen = [router.choose(0, 0, peers).index for _ in range(70)]
    assert [chosen.count(index) for index in range(3)] == [40, 20, 10]
    assert router.choose(0, 0, []) is None


def test_a_planned_path_goes_through_another_peer_of_the_stage_where_its_own_is_lost():
    router = PlannedPaths([[(0, 0), (2, 5)]], 3, frozenset({0}))
    assert router.paths() == [[0, 2]]
    assert router.choose(0, 2, [Peer(4, 2), Peer(5, 2)]).index == 5
    assert router.choose(0, 2, [Peer(4, 2)]).index == 4
    assert router.choose(0, 2, []) is None
    assert router.may_skip(2)
    assert not router.may_skip(0)


def test_load_ratios_converge_with_moves_and_do_not_without():
    setting, stages = uniform(per_s=0.0002, move_s=5.0), [0] * 7 + [1] * 4 + [2] * 3 + [3] * 2
    ratios = {}
    for every_s in (300.0, 1e12):
        peers = [Peer(index, stage) for index, stage in enumerate(stages)]
        run = RoutedSteps(
            setting, WeightedRoundRobin(4, 32), 1, Rebalancing(setting.work, every_s), peers=peers
        )
        run.run(1500.0)
        before = [list(run.loads.busy), list(run.loads.present)]
        run.run(6000.0)
        both = zip(run.loads.busy, before[0], run.loads.present, before[1], strict=True)
        loads = [(busy - b) / (present - p) for busy, b, present, p in both]
        ratios[every_s] = max(loads) * 4 / sum(loads)
    assert ratios[300.0] < 1.05 < ratios[1e12]


def test_every_routing_is_slower_with_churn_and_swarm_less_than_fixed():
    calm = uniform(patterns=((0, 1, 3), (0, 2, 3)), compulsory=frozenset({0, 3}))
    stormy = replace(calm, per_s=1 / 4000)
    slower = {
        name: sum(routing(stormy, seed, 10000.0).mean_s for seed in range(2))
        / 2
        / routing(calm, 0, 0.0).mean_s
        for name, routing in ROUTINGS.items()
    }
    assert min(slower.values()) > 1.0
    assert slower["swarm"] < slower["fixed"]


def test_a_step_that_never_ends_has_no_time():
    setting = uniform(stages=2, replicas=1, per_s=1.0, down_s=0.1)
    assert fixed(setting, 0, 1.0).mean_s == float("inf")


def test_the_same_seed_gives_the_same_changes():
    one, other = (ChurnTrace(8, 0.01, 30.0, seed=3) for _ in range(2))
    changes = [one.pop() for _ in range(100)]
    assert changes == [other.pop() for _ in range(100)]
    assert [change.at_s for change in changes] == sorted(change.at_s for change in changes)
    left = {change.peer: change.at_s for change in changes if not change.joins}
    assert all(change.joins or left[change.peer] >= change.at_s for change in changes)
    assert ChurnTrace(8, 0.0, 30.0, seed=3).next_s == float("inf")


def test_paths_of_patterns_stay_in_their_replica():
    setting = uniform(replicas=2, micro_batches=3, patterns=((0, 1), (0, 2)))
    assert planned_paths(setting)[:4] == [
        [(0, 0), (1, 2)],
        [(0, 1), (1, 3)],
        [(0, 0), (2, 4)],
        [(0, 1), (2, 5)],
    ]


def test_a_slow_peer_is_given_up_first():
    work = uniform().work
    peers = [Peer(at, stage) for at, stage in enumerate([0, 0, 0, 1, 2, 3])]
    peers[1].speed = 0.5
    moves = Rebalancing(work)
    loads = moves._since
    loads.busy, loads.present = [1.0, 3.0, 2.0, 2.0], [3.0] * 4
    assert moves.move(peers, 299.0) is None
    assert moves.move(peers, 301.0) is peers[1]
    assert peers[1].stage == 1
