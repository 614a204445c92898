"""Copy bytes between a device and its host's memory, and log the copies of model states.

On an accelerator copies run on streams of their own, one per direction, with pinned memory; the compute stream waits
for the end of a copy out before it frees the source, so that its memory is not overwritten while it is read, and for
the end of a copy back before it uses the target. If the device is the host itself, a copy is an ordinary copy between
separate tensors. (The streams follow PyTorch's rules; tests run them only on an accelerator.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import torch

Way = Literal["out", "back"]


class StateCopy(NamedTuple):
    """A logged copy of model states: the action, the direction, the kind of state, and logical bytes.

    Bytes are counted at the Program's width, whatever dtype a run computes in.
    """

    action: str
    way: Way
    kind: str
    logical_bytes: int


@dataclass(frozen=True)
class HostLink:
    """The connection between a device and its host; ``log`` has the copies of model states."""

    device: torch.device
    log: list[StateCopy] = field(default_factory=list)

    @property
    def accelerated(self) -> bool:
        """True if host memory is separate from device memory."""
        return self.device.type == "cuda"

    @cached_property
    def _streams(self) -> Mapping[str, torch.cuda.Stream]:
        return {way: torch.cuda.Stream(self.device) for way in ("out", "back")}

    def host_zeros(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        """Return zeros in the host's memory, pinned on an accelerator."""
        return torch.zeros(elements, dtype=dtype, pin_memory=self.accelerated)

    def out(self, storages: Iterable[torch.UntypedStorage]) -> "Copy":
        """Start to copy storages to the host."""
        flat = [_bytes_of(storage, self.device) for storage in storages]
        hosts = [torch.empty(one.numel(), dtype=torch.uint8, pin_memory=self.accelerated) for one in flat]
        return self.begin("out", flat, hosts)

    def back(self, hosts: Iterable[torch.Tensor]) -> "Copy":
        """Start to copy from the host to the device, whose memory is allocated at once."""
        sources = list(hosts)
        flat = [torch.empty(one.numel(), dtype=torch.uint8, device=self.device) for one in sources]
        return self.begin("back", sources, flat)

    def begin(self, way: Way, sources: list[torch.Tensor], targets: list[torch.Tensor]) -> "Copy":
        """Start to copy tensors into others of the same sizes."""
        if not self.accelerated:
            for source, target in zip(sources, targets, strict=True):
                target.copy_(source)
            return Copy(sources, targets)
        stream = self._streams[way]
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for source, target in zip(sources, targets, strict=True):
                target.copy_(source, non_blocking=True)
            return Copy(sources, targets, stream.record_event())


@dataclass(eq=False)
class Copy:
    """A copy in progress; its sources are held until it is ended."""

    sources: list[torch.Tensor]
    targets: list[torch.Tensor]
    event: torch.cuda.Event | None = None

    def end(self) -> list[torch.Tensor]:
        """Make the compute stream wait for the copy, release its sources, and return the targets."""
        if self.event is not None:
            torch.cuda.current_stream().wait_event(self.event)
        self.sources = []
        return self.targets

    def arrive(self) -> list[torch.Tensor]:
        """Make the host wait for the copy, release its sources, and return the targets."""
        if self.event is not None:
            self.event.synchronize()
        return self.end()


def _bytes_of(storage: torch.UntypedStorage, device: torch.device) -> torch.Tensor:
    """Return all of a storage as bytes, without a copy."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
