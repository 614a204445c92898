"""Move the tensors saved for the backward pass to host memory and back.

Everything that lives between passes is in an ``OperatorCall``'s ``kept`` and nowhere else, so activations leave the
device when they leave it. A storage that several tensors share is copied once. On an accelerator copies run on their
own streams, one per direction, with pinned memory; the compute stream waits for the end of a copy out before it frees
the activations, so that their memory is not overwritten while it is read, and for the end of a copy back before it uses
them. If the device is the host itself, the copy is an ordinary copy, and its source is freed all the same. (The streams
follow PyTorch's rules; tests run them only on an accelerator.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from meshwright.runtime.executor.operator_call import OperatorCall


@dataclass(frozen=True)
class HostLink:
    """The connection between a device and its host."""

    device: torch.device

    @property
    def accelerated(self) -> bool:
        """True if host memory is separate from device memory."""
        return self.device.type == "cuda"

    @cached_property
    def _streams(self) -> Mapping[str, torch.cuda.Stream]:
        return {way: torch.cuda.Stream(self.device) for way in ("out", "back")}

    def out(self, storages: Iterable[torch.UntypedStorage]) -> "Copy":
        """Start to copy storages to the host."""
        flat = [_bytes_of(storage, self.device) for storage in storages]
        hosts = [torch.empty(one.numel(), dtype=torch.uint8, pin_memory=self.accelerated) for one in flat]
        return self._begin("out", flat, hosts)

    def back(self, hosts: Iterable[torch.Tensor]) -> "Copy":
        """Start to copy from the host to the device, whose memory is allocated at once."""
        sources = list(hosts)
        flat = [torch.empty(one.numel(), dtype=torch.uint8, device=self.device) for one in sources]
        return self._begin("back", sources, flat)

    def _begin(self, way: str, sources: list[torch.Tensor], targets: list[torch.Tensor]) -> "Copy":
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


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """One saved tensor of an operator call: its name, its storage, and its view of the storage."""

    visit: OperatorCall
    name: str
    storage: int
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def put_back(self, storage: torch.Tensor) -> None:
        """Restore the tensor in its operator call from the bytes of its storage."""
        whole = storage.view(self.dtype)
        self.visit.kept[self.name] = whole.as_strided(self.size, self.stride, self.offset)


@dataclass
class OffloadedPass:
    """The tensors that some operator calls of a pass save: on the device, on the host, or in transit.

    Call ``out``, then ``let_go``, then ``back``, then ``unpack``.
    """

    link: HostLink
    kept: list[SavedTensor] = field(default_factory=list)
    going: Copy | None = None
    hosts: list[torch.Tensor] = field(default_factory=list)
    coming: Copy | None = None

    def out(self, visits: Iterable[OperatorCall]) -> None:
        """Start to copy all saved tensors of these operator calls to the host."""
        storages: dict[int, torch.UntypedStorage] = {}
        numbers: dict[int, int] = {}
        for visit in visits:
            for name, tensor in visit.kept.items():
                storage = tensor.untyped_storage()
                storages.setdefault(storage.data_ptr(), storage)
                number = numbers.setdefault(storage.data_ptr(), len(numbers))
                size, stride, offset = tensor.size(), tensor.stride(), int(tensor.storage_offset())
                self.kept.append(SavedTensor(visit, name, number, tensor.dtype, size, stride, offset))
        self.going = self.link.out(storages.values())

    def let_go(self) -> None:
        """End the copy out and free the saved tensors on the device."""
        assert self.going is not None, "nothing is on its way out"
        self.hosts, self.going = self.going.end(), None
        for one in self.kept:
            del one.visit.kept[one.name]

    def back(self) -> None:
        """Start to copy everything back to the device."""
        assert self.going is None, "what comes back is still on its way out"
        self.coming = self.link.back(self.hosts)

    def unpack(self) -> None:
        """End the copy back and restore the saved tensors."""
        assert self.coming is not None, "what is needed is still on the host"
        storages, self.coming = self.coming.end(), None
        for one in self.kept:
            one.put_back(storages[one.storage])
        self.kept, self.hosts = [], []

    def device_bytes(self) -> int:
        """Return the device bytes that a copy back has allocated so far, in addition to the saved tensors."""
        return sum(one.numel() for one in self.coming.targets) if self.coming else 0


def _bytes_of(storage: torch.UntypedStorage, device: torch.device) -> torch.Tensor:
    """Return all of a storage as bytes, without a copy."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
