"""The inputs and the measured values of a serving run, in two types.

``ServingInputs`` has no measured column, id, source or note, so that no prediction depends on one. Names are ours.
"""

from dataclasses import dataclass
from typing import Literal

from meshwright.plans.serving.replica_layout import ReplicaLayout

Does = Literal["serve", "prefill", "decode"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """Equal replicas of one pool. ``batch``: the most sequences of a replica, all its ranks; None: not given.

    ``counted`` False: ``replicas`` are as many as the other pool needs, of which the run has one among its devices.
    """

    does: Does
    replicas: int
    layout: ReplicaLayout
    batch: int | None = None
    counted: bool = True

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.layout.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingInputs:
    """The columns of a run that a prediction reads.

    ``engine`` is the family, ``release`` its release or "". ``weights`` None: the released weights' own format; ``kv``
    None: not published. ``workers``: one entry that serves, or one that prefills and one that decodes. The load is
    ``concurrency`` requests at once over all replicas, or ``rate_per_s`` requests; both None: the largest batch
    that fits.
    """

    model: str
    device: str
    devices: int
    engine: str
    release: str
    weights: str | None
    kv: str | None
    workers: tuple[Workers, ...]
    input_tokens: int
    output_tokens: int
    concurrency: int | None
    rate_per_s: float | None

    @property
    def level_group(self) -> tuple[str, str, str]:
        """Model, device and engine family: runs with a common constant factor in their times."""
        return self.model, self.device, self.engine

    @property
    def layout_free(self) -> "ServingInputs":
        """The inputs with the layout left out: equal for runs whose layouts compete."""
        return ServingInputs(
            model=self.model,
            device=self.device,
            devices=0,
            engine=self.engine,
            release=self.release,
            weights=self.weights,
            kv=self.kv,
            workers=(),
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            concurrency=self.concurrency,
            rate_per_s=self.rate_per_s,
        )

    @property
    def tp(self) -> int:
        """Tensor-parallel degree of the workers that write the output."""
        return self.workers[-1].layout.tp


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMeasured:
    """The measured columns of a run: mean seconds, and output tokens per second of a device; None: not published."""

    ttft_s: float | None
    tpot_s: float | None
    output_tokens_per_s_per_device: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRow:
    """A run of a table that was read. ``remarks``: what was taken where the table says nothing."""

    id: str
    source: str
    inputs: ServingInputs
    measured: ServingMeasured
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRow:
    """A run that has no prediction. ``complete``: it has model, device, both lengths and a load."""

    id: str
    source: str
    reason: str
    complete: bool
