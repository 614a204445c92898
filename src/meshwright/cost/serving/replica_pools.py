"""Arrays of alternative pools of equal replicas, and the model, devices and engine that all of them share."""

from dataclasses import dataclass

from meshwright.cost.serving.hardware_times import ServingTimes, serving_constants
from meshwright.cost.serving.iteration import Overheads, ReplicaCost
from meshwright.cost.serving.steady_state import Waiting
from meshwright.model.graph import ModelGraph
from meshwright.program.local_shape import Number
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats
from meshwright.stack.serving.serving_stack import ServingStack

DEFAULT_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model on devices of one kind under one engine. ``memory_bytes``: that an engine can use of a device.

    ``host_memory_bytes``: of a host, which ``devices_of_host`` share; None: unknown.
    """

    model: ModelGraph
    times: ServingTimes
    memory_bytes: float
    engine: ServingStack
    host_memory_bytes: int | None = None
    devices_of_host: int = 1

    @property
    def waiting(self) -> Waiting:
        """Seconds of requests outside iterations."""
        return Waiting(prompt_s=self.engine.fitted.prompt_s, burst_share=serving_constants()["burst_share"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolArrays:
    """Equal replicas. ``max_sequences`` that decode at once in a replica; infinity: as many as have room."""

    degrees: ReplicaDegrees
    formats: StorageFormats
    chunk_tokens: Number
    max_sequences: Number
    kv_fraction: Number
    replicas: Number = 1.0
    block_tokens: int = DEFAULT_BLOCK_TOKENS
    overlap: str = "none"
    allreduce: str = "auto"

    @property
    def devices(self) -> Number:
        """Devices of all replicas."""
        return self.replicas * self.degrees.devices

    def cost(self, served: ServedModel) -> ReplicaCost:
        """Return what the seconds of a replica's iterations depend on."""
        fitted = served.engine.fitted
        return ReplicaCost(
            model=served.model,
            times=served.times,
            degrees=self.degrees,
            formats=self.formats,
            overheads=Overheads(fitted.host_s, fitted.sequence_s),
            overlap=self.overlap,
            allreduce=self.allreduce,
        )
