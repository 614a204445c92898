"""Place the chunks of a Program's states on device and host, and count what the device fetches.

A device has room for what its activations, working memory and two groups of gathered chunks leave. Chunks of
parameters, which passes need, come first; chunks of the optimizer fill the rest (they are needed last, in the step) and
are stepped where they are. If parameters do not fit either, passes fetch those that are missing, and as much leaves.
Ignored: that activations are gone during the step, when more chunks of the optimizer would have room.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from meshwright.cost.memory.memory_breakdown import usable_device_bytes
from meshwright.plans.forms.host_offload import HostShares
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.setting import Setting
from meshwright.program.model_states.chunks import PARAMETER_BYTES, ChunkLayout, chunk_layout, fetches
from meshwright.program.model_states.states_on_host import HostStates, PassCopies
from meshwright.program.program import Program
from meshwright.schedules.action import Kind
from meshwright.simulate.memory_ledger import rank_ledger

GROUPS = 2
"""Groups of chunks that a device has gathered at once: of the block that computes, and of the next."""
LEAST_SLOTS = 1
"""Chunks of parameters that a device has at least."""


@dataclass(frozen=True)
class ChunkPlacement:
    """The chunks of one rank: the first ``parameters`` and ``optimizer`` chunks of each kind are on the device.

    ``fetched`` are the chunks that a forward and a backward pass fetch; ``fixed`` is the ledger of all else.
    """

    layout: ChunkLayout
    parameters: int
    optimizer: int
    fetched: tuple[int, int]
    optimizer_bytes: int
    fixed: Mapping[str, int]

    @property
    def ledger(self) -> dict[str, int]:
        """The bytes on the device by kind."""
        chunk = self.layout.elements
        return {
            **self.fixed,
            "parameters": self.parameters * PARAMETER_BYTES * chunk,
            "gradients": 0,
            "optimizer": self.optimizer * self.optimizer_bytes * chunk,
        }

    @property
    def host_bytes(self) -> int:
        """The bytes on the host."""
        layout = self.layout
        parameters = (layout.count - self.parameters) * PARAMETER_BYTES
        return layout.elements * (parameters + (layout.count - self.optimizer) * self.optimizer_bytes)


def placed(program: Program, plan: LongPlan, setting: Setting) -> ChunkPlacement:
    """Return the placement of the chunks of a Program without states on the host."""
    assert plan.offload is not None
    size = plan.offload.chunk_mib
    layout = chunk_layout(program, None if size is None or isinstance(size, str) else size)
    ledger, ranks = (
        rank_ledger(program, 0, setting.cluster),
        int(program.parts.only.shape.shard),
    )
    gathered = GROUPS * ranks * PARAMETER_BYTES * layout.elements if ranks > 1 else 0
    fixed = {**ledger, "buffers": gathered}
    taken = sum(fixed[key] for key in ("activations", "working", "workspace", "buffers"))
    room = int(usable_device_bytes(setting.cluster)) - taken
    chunk, own = PARAMETER_BYTES * layout.elements, program.stack.optimizer_bytes
    parameters = min(layout.count, max(LEAST_SLOTS, room // chunk))
    optimizer = min(layout.count, max(0, room - layout.count * chunk) // (own * layout.elements))
    order = [*range(layout.count), *reversed(range(layout.count))]
    missing = fetches(order, parameters) if parameters < layout.count else [False] * len(order)
    fetched = sum(missing[: layout.count]), sum(missing[layout.count :])
    return ChunkPlacement(layout, parameters, optimizer, fetched, own, fixed)


def with_copies(program: Program, placement: ChunkPlacement) -> Program:
    """Return a Program whose passes and step copy what the placement says."""
    count = placement.layout.count
    shares = HostShares(1 - placement.optimizer / count, 1 - placement.parameters / count)
    chunk = PARAMETER_BYTES * placement.layout.elements
    passes: tuple[Kind, Kind] = ("F", "B")
    copies = {
        (stage.index, kind): PassCopies(chunk * fetched, chunk * fetched)
        for stage in program.stages
        for kind, fetched in zip(passes, placement.fetched, strict=True)
    }
    if not shares.some:
        return program
    host = HostStates(
        shares=shares, sharding="zero3", shape=program.parts.only.shape, stack=program.stack, leave=0
    )
    return replace(program, host_states=host, state_copies=copies)
