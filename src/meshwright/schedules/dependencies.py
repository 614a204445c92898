"""Dependencies between the actions of a schedule, in addition to the order of each rank's list.

F of a stage needs F of the stage before, B and I need B or I of the stage behind (at the end of the chain: their own
F), W needs I. Stages may form several chains one behind the other, each a whole way through the model: then
micro-batches enter at the first stage of each chain (bidirectional schedules). Or they form a graph with branches: then
F needs F of all stages before, B and I need B or I of all stages behind.

Where the vocabulary is spread over the ranks (``vocabulary/``), S of every rank needs F of the last stage, T of every
rank needs S of all ranks, and B or I of the last stage needs T of all ranks (two barriers) or S of all (one). What all
ranks exchange takes as long as a message this way: a sum is there a message after the last rank's part. With ``rows``
the embedding is in the lists too: F of the first stage needs E of all ranks, D of every rank B or I of the first stage.
"""

from dataclasses import dataclass

from meshwright.schedules.action import PASS_KINDS, Action, Kind
from meshwright.schedules.stage_graph import StageGraph

Key = tuple[str, int, int]
"""(kind, stage, micro-batch) of a pass; I is found under ``B``, since others need the gradient of the input only."""


@dataclass(frozen=True, slots=True)
class StageChains:
    """The path of micro-batches through K ``stages``: in ``chains`` of K / chains stages each.

    With ``barriers`` the vocabulary is spread over ``ranks`` ranks; else it is in the first and the last stage.
    ``rows``: the passes of the embedding are in the lists, not only those of the head. ``graph``: the stages form
    branches, in one way through the model; without it they are chains.
    """

    stages: int
    chains: int = 1
    barriers: int = 0
    ranks: int = 0
    rows: bool = False
    graph: StageGraph | None = None

    @property
    def length(self) -> int:
        """Stages of one chain."""
        return self.stages // self.chains

    def is_first(self, stage: int) -> bool:
        """Return true if micro-batches enter at this stage."""
        return not self.before(stage)

    def is_last(self, stage: int) -> bool:
        """Return true if a loss is computed at this stage."""
        return not self.behind(stage)

    def before(self, stage: int) -> tuple[int, ...]:
        """Return the stages whose outputs a stage needs."""
        if self.graph:
            return self.graph.before[stage]
        return (stage - 1,) if stage % self.length else ()

    def behind(self, stage: int) -> tuple[int, ...]:
        """Return the stages that need a stage's output."""
        if self.graph:
            return self.graph.behind[stage]
        return (stage + 1,) if (stage + 1) % self.length else ()

    def position(self, stage: int) -> int:
        """Return the place of a stage in its chain; stages at equal places have the same layers."""
        return stage % self.length

    def same_layers(self, position: int) -> tuple[int, ...]:
        """Return the stages at a place, one of each chain."""
        return tuple(range(position, self.stages, self.length))

    def micro_batches_of(self, stage: int, micro_batches: int) -> range:
        """Return the micro-batches of M that go through a stage: chains take equal shares in turn."""
        share = micro_batches // self.chains
        first = stage // self.length * share
        return range(first, first + share)

    def everywhere(self, kind: Kind, micro_batch: int) -> tuple[Key, ...]:
        """E, S or T of a micro-batch on all ranks."""
        return tuple((kind, self.stages + rank, micro_batch) for rank in range(self.ranks))


def dependency_key(action: Action) -> Key:
    """Under which name others need a pass."""
    assert action.stage is not None
    assert action.micro_batch is not None
    return ("B" if action.kind == "I" else action.kind, action.stage, action.micro_batch)


def sources(action: Action, ways: StageChains) -> tuple[Key, ...]:
    """Return the passes whose results an action needs."""
    _, stage, micro_batch = dependency_key(action)
    if action.kind == "F" and ways.is_first(stage):
        return ways.everywhere("E", micro_batch) if ways.rows else ()
    if action.kind == "F":
        return tuple(("F", other, micro_batch) for other in ways.before(stage))
    if action.kind == "E":
        return ()
    if action.kind == "D":
        return (("B", 0, micro_batch),)
    if action.kind == "W":
        return (("B", stage, micro_batch),)
    if action.kind == "S":
        return (("F", ways.stages - 1, micro_batch),)
    if action.kind == "T":
        return ways.everywhere("S", micro_batch)
    if not ways.is_last(stage):
        return tuple(("B", other, micro_batch) for other in ways.behind(stage))
    if ways.barriers:
        return ways.everywhere("T" if ways.barriers > 1 else "S", micro_batch)
    return (("F", stage, micro_batch),)


def exchange_before(action: Action, ways: StageChains) -> Kind | None:
    """Return the exchange between all ranks that a pass waits for; None where it waits for none."""
    if action.kind not in PASS_KINDS or not ways.barriers:
        return None
    stage = dependency_key(action)[1]
    if action.kind == "F":
        return "REDUCE_E" if ways.rows and ways.is_first(stage) else None
    if action.kind in ("B", "I"):
        if not ways.is_last(stage):
            return None
        return "REDUCE_T" if ways.barriers > 1 else "REDUCE_S"
    return _BRINGS.get(action.kind)


_BRINGS: dict[Kind, Kind] = {"S": "BROADCAST_F", "T": "REDUCE_S", "D": "BROADCAST_B"}
