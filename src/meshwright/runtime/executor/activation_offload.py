"""Move the tensors saved for the backward pass to host memory and back.

Everything that lives between passes is in an ``OperatorCall``'s ``kept`` and nowhere else, so activations leave the
device when they leave it. A storage that several tensors share is copied once, over the link of ``comm/host_link.py``;
if the device is the host itself, the source is freed all the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from meshwright.runtime.comm.host_link import Copy, HostLink
from meshwright.runtime.executor.operator_call import OperatorCall


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
