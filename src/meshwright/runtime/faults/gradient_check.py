"""Check a rank's own gradients before they are summed with those of others.

A gradient is *suspect* if it is not finite, or if its norm is far above that of the same unit in this rank's last
steps; in its first steps, above that of its replicas in the same step. A suspect may still be right: the data, or too
large a step, make gradients of the whole job jump. So a rank that holds the loss looks at it: one that has jumped too
explains the gradient. Otherwise the rank writes its suspicion into the store and waits for the others, who only wait
for it in their collective. If at least half of the ranks with the same layers have the same suspicion, or a rank finds
its loss to explain it, all go on; else the rank itself is at fault.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import hypot, isfinite
from statistics import median
from time import monotonic, sleep

import torch
import torch.distributed as dist

from meshwright.program.model_states.state_elements import DENSE_MESH
from meshwright.runtime.faults.fault import Fault, FaultError, FaultKind
from meshwright.runtime.state.sharded_unit import Unit

FAR = 30.0
"""Times the largest norm of the last steps that is suspect: healthy norms stay within a few times of each other, and a
wrong exponent bit or a corrupted buffer changes them by orders of magnitude."""
FAR_WITHOUT_PEERS = 100.0
"""The same where no other rank has these layers, so that none can confirm a jump of the whole job."""
KEPT = 16
"""Steps of a history: enough for a stable maximum, few enough to follow the fall of norms early in training."""
FIRST = 2
"""Steps with less history than this are compared with replicas through the store."""
GRACE_S = 1.0
"""Seconds that a suspect waits for others: ranks reach the same reduction within a step of each other."""
LOSS_JUMP = 2.0
"""Times the largest of the last losses that explains a jump of gradients."""
GLANCE_S = 0.005
"""Seconds between two looks at the store."""


@dataclass
class GradientCheck:
    """The check of one rank. ``alike`` are the ranks with the same layers, this one included.

    ``own_loss`` returns the sum of this rank's losses in the step so far, None if it computes none. ``losses`` are
    those of its last steps. ``step_s`` is how long a step takes.
    """

    rank: int
    alike: Sequence[int]
    store: dist.Store
    own_loss: Callable[[], float | None]
    losses: "deque[float]" = field(default_factory=lambda: deque(maxlen=KEPT))
    step: int = -1
    step_s: float = 0.0
    _norms: "dict[tuple[str, int], deque[float]]" = field(default_factory=dict)
    _ordinals: dict[str, int] = field(default_factory=dict)

    def begin_step(self, step: int) -> None:
        """Begin a step."""
        self.step = step
        self._ordinals.clear()

    def end_step(self, seconds: float) -> None:
        """Remember the loss of the step."""
        self.step_s = seconds
        loss = self.own_loss()
        if loss is not None and isfinite(loss):
            self.losses.append(loss)

    def __call__(self, unit: Unit, parts: Sequence[torch.Tensor]) -> None:
        """Raise FaultError if this rank's gradients of a unit are wrong."""
        ordinal = self._ordinals[unit.name] = self._ordinals.get(unit.name, -1) + 1
        norm = norm_of(parts)
        history = self._norms.setdefault((unit.name, ordinal), deque(maxlen=KEPT))
        if not isfinite(norm):
            self._accuse("nan", unit, f"its gradient of {unit.name} is not finite", norm)
            return
        largest = max(history, default=0.0)
        if len(history) < FIRST:
            self._compare_with_replicas(unit, ordinal, norm)
        elif largest and norm > largest * (FAR if len(self.alike) > 1 else FAR_WITHOUT_PEERS):
            usual = median(history)
            text = f"the norm of its gradient of {unit.name} is {norm:.3g}, {norm / largest:.3g} times"
            text += f" the largest and {norm / usual:.3g} times the median" if usual else " the largest"
            self._accuse("corrupt", unit, f"{text} of its last {len(history)} steps", norm)
        history.append(norm)

    def _compare_with_replicas(self, unit: Unit, ordinal: int, norm: float) -> None:
        """Compare a norm with those of replicas in the same step, through the store.

        All of them reach this reduction before any can leave it. Experts are not compared: routers give replicas of
        one expert very different numbers of tokens.
        """
        mesh = unit.layout.mesh
        if mesh != DENSE_MESH:
            return
        axes = (*mesh.replica, *mesh.shard)
        replicas = unit.communicator.part.mesh_with(axes).group_of(self.rank, axes)
        if len(replicas) == 1:
            return
        key = f"norm {self.step} {ordinal} {unit.name} "
        self.store.set(f"{key}{self.rank}", repr(norm))
        others = [f"{key}{other}" for other in replicas if other != self.rank]
        if not _wait_until(lambda: self.store.check(others), self._grace_s):
            return
        theirs = max(float(self.store.get(other)) for other in others)
        if theirs and norm > FAR_WITHOUT_PEERS * theirs:
            text = f"the norm of its gradient of {unit.name} is {norm:.3g}, {norm / theirs:.3g} times the"
            self._accuse("corrupt", unit, f"{text} largest of its {len(others)} replicas", norm)

    def _accuse(self, kind: FaultKind, unit: Unit, evidence: str, norm: float) -> None:
        """Raise FaultError for this rank unless the loss or other ranks explain its gradient."""
        explained = f"gradients of step {self.step} explained"
        loss = self.own_loss()
        if loss is not None and (not isfinite(loss) or loss > LOSS_JUMP * max(self.losses, default=loss)):
            self.store.set(explained, "")
            return
        key = f"suspect gradient {self.step} "
        self.store.set(f"{key}{self.rank}", "")
        others = [other for other in self.alike if other != self.rank]

        def confirmed() -> bool:
            if self.store.check([explained]):
                return True
            suspects = sum(self.store.check([f"{key}{other}"]) for other in others)
            return bool(others) and 2 * suspects >= len(others)

        if _wait_until(confirmed, self._grace_s):
            return
        if others:
            evidence += f"; the gradients of {len(others)} other ranks with these layers are as usual"
        if loss is not None and kind == "nan":
            evidence += f"; its loss is {loss:.4g}"
        raise FaultError([Fault(kind=kind, rank=self.rank, step=self.step, evidence=evidence)])

    @property
    def _grace_s(self) -> float:
        return max(GRACE_S, self.step_s)


def norm_of(parts: Sequence[torch.Tensor]) -> float:
    """Return the norm of a gradient in several memories; not finite only if an element is not."""
    total = hypot(*(_norm(part, torch.promote_types(part.dtype, torch.float32)) for part in parts))
    if isfinite(total) or not all(bool(part.isfinite().all()) for part in parts):
        return total
    return hypot(*(_norm(part, torch.float64) for part in parts))


def _norm(part: torch.Tensor, dtype: torch.dtype) -> float:
    return float(torch.linalg.vector_norm(part, dtype=dtype)) if part.numel() else 0.0


def _wait_until(done: Callable[[], bool], limit_s: float) -> bool:
    until = monotonic() + limit_s
    while not done():
        if monotonic() > until:
            return False
        sleep(GLANCE_S)
    return True
