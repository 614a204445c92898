"""What a pass keeps, on its way to the host's memory and back.

Visits hold all that lives between passes, and nothing else does: so activations leave the device when they leave the
visits. A storage that several of them share goes once. On an accelerator copies run on streams of their own, out and
back, from and to pinned memory; the compute stream waits for the end of a copy out before it lets the activations go,
so that nobody writes to their memory while they are read, and for the end of a copy back before it uses them. Where the
device is the host itself a copy is a copy, and what it is made of is let go all the same. (The streams follow
PyTorch's rules for them; no test runs them where there is no accelerator.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch

from meshwright.runtime.visit import Visit


@dataclass(frozen=True)
class HostLink:
    """The way between a device and its host."""

    device: torch.device

    @property
    def accelerated(self) -> bool:
        """Whether the host's memory is not the device's own."""
        return self.device.type == "cuda"

    @cached_property
    def _streams(self) -> Mapping[str, torch.cuda.Stream]:
        return {way: torch.cuda.Stream(self.device) for way in ("out", "back")}

    def out(self, storages: Iterable[torch.UntypedStorage]) -> "Copy":
        """Begin to copy storages to the host."""
        flat = [_bytes_of(storage, self.device) for storage in storages]
        hosts = [torch.empty(one.numel(), dtype=torch.uint8, pin_memory=self.accelerated) for one in flat]
        return self._begin("out", flat, hosts)

    def back(self, hosts: Iterable[torch.Tensor]) -> "Copy":
        """Begin to copy what is on the host to the device; its memory is taken at once."""
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
    """A copy that has begun; what it reads stays until it is ended."""

    sources: list[torch.Tensor]
    targets: list[torch.Tensor]
    event: torch.cuda.Event | None = None

    def end(self) -> list[torch.Tensor]:
        """Let compute wait for it; the results. What was read is let go."""
        if self.event is not None:
            torch.cuda.current_stream().wait_event(self.event)
        self.sources = []
        return self.targets


@dataclass(frozen=True, slots=True)
class Kept:
    """One tensor of a visit: its name there, and which elements of which storage it is."""

    visit: Visit
    name: str
    storage: int
    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int

    def put_back(self, storage: torch.Tensor) -> None:
        """Give the visit its tensor again, from the bytes of its storage."""
        whole = storage.view(self.dtype)
        self.visit.kept[self.name] = whole.as_strided(self.size, self.stride, self.offset)


@dataclass
class Parcel:
    """What some visits of a pass keep: on the device, on the host, or on its way between the two.

    ``out``, then ``let_go``, then ``back``, then ``unpack``.
    """

    link: HostLink
    kept: list[Kept] = field(default_factory=list)
    going: Copy | None = None
    hosts: list[torch.Tensor] = field(default_factory=list)
    coming: Copy | None = None

    def out(self, visits: Iterable[Visit]) -> None:
        """Begin to copy all that the visits keep."""
        storages: dict[int, torch.UntypedStorage] = {}
        numbers: dict[int, int] = {}
        for visit in visits:
            for name, tensor in visit.kept.items():
                storage = tensor.untyped_storage()
                storages.setdefault(storage.data_ptr(), storage)
                number = numbers.setdefault(storage.data_ptr(), len(numbers))
                size, stride, offset = tensor.size(), tensor.stride(), int(tensor.storage_offset())
                self.kept.append(Kept(visit, name, number, tensor.dtype, size, stride, offset))
        self.going = self.link.out(storages.values())

    def let_go(self) -> None:
        """End the copy out: the visits keep nothing on the device."""
        assert self.going is not None, "nothing is on its way out"
        self.hosts, self.going = self.going.end(), None
        for one in self.kept:
            del one.visit.kept[one.name]

    def back(self) -> None:
        """Begin to copy everything back."""
        assert self.going is None, "what comes back is still on its way out"
        self.coming = self.link.back(self.hosts)

    def unpack(self) -> None:
        """End the copy back: the visits have what they kept."""
        assert self.coming is not None, "what is needed is still on the host"
        storages, self.coming = self.coming.end(), None
        for one in self.kept:
            one.put_back(storages[one.storage])
        self.kept, self.hosts = [], []

    def device_bytes(self) -> int:
        """What a copy back has taken of the device so far; what is on its way out its visits still have."""
        return sum(one.numel() for one in self.coming.targets) if self.coming else 0


def _bytes_of(storage: torch.UntypedStorage, device: torch.device) -> torch.Tensor:
    """All of a storage as bytes, without a copy."""
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
