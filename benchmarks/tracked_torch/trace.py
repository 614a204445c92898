"""Trace one micro-batch of a step with fake tensors in a fake process group, and read PyTorch's memory tracker.

The micro-batch is one behind the first of a step: sharded gradients are there and are added to. Moments of AdamW are
there as well. Operators that DTensor runs to learn shapes make tensors of the whole, not of one rank; the tracker would
count them, so that it looks away meanwhile.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker, _FSDPRefType
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

from meshwright.model.architecture import Architecture
from tracked_torch.decoder import Decoder
from tracked_torch.parallel import cut_over_tp, recompute, shard

STATES = (_FSDPRefType.SHARDED_PARAM, _FSDPRefType.SHARDED_GRAD, _FSDPRefType.OPT)
BUFFERS = (_FSDPRefType.UNSHARDED_PARAM, _FSDPRefType.ALL_GATHER, _FSDPRefType.REDUCE_SCATTER)
PASSING = (_FSDPRefType.ACT, _FSDPRefType.TEMP)


@dataclass(frozen=True, kw_only=True)
class Traced:
    """Bytes of one rank: states, what blocks keep at the end of the forward pass, buffers of FSDP2 at the peak.

    ``kept_bytes`` are without logits. ``passing_bytes``: all but states at the peak.
    """

    states_bytes: int
    kept_bytes: int
    buffers_bytes: int
    peak_bytes: int

    @property
    def passing_bytes(self) -> int:
        """All but states at the peak: activations, what operators work in, buffers."""
        return self.peak_bytes - self.states_bytes


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Ranks and recomputation of a trace; one sequence a rank."""

    dp: int
    tp: int
    recompute: str
    seq_len: int


class _Tracker(FSDPMemTracker):
    """Count nothing while DTensor works out shapes; count the gradients of a unit that are not reduced as buffers."""

    looks_away, highest, buffers_bytes = False, 0, 0

    def _update_peak_stats(self, peak_state: Any) -> None:
        super()._update_peak_stats(peak_state)
        (now,) = self._curr_mem_snap.values()
        if now["Total"] > self.highest:
            self.highest = now["Total"]
            self.buffers_bytes = sum(now[kind] for kind in BUFFERS) + self._own_gradient_bytes()

    def _own_gradient_bytes(self) -> int:
        if not self._mod_tracker.is_bw:
            return 0
        gradients = (p._unsharded_param.grad for p in self.sharded if hasattr(p, "_unsharded_param"))
        return sum(_local(gradient).nbytes for gradient in gradients if gradient is not None)

    @cached_property
    def sharded(self) -> list[Any]:
        """The parameters that FSDP2 shards."""
        units = (
            module._get_fsdp_state()._fsdp_param_group
            for module in self._root_mod.modules()
            if isinstance(module, FSDPModule)
        )
        return [parameter for unit in units if unit for parameter in unit.fsdp_params]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.looks_away:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    @contextmanager
    def without_shape_propagation(self) -> Iterator[None]:
        """Look away from operators on tensors of the whole."""
        propagate = ShardingPropagator._propagate_tensor_meta_non_cached

        def unseen(*args: Any, **kwargs: Any) -> Any:
            before, self.looks_away = self.looks_away, True
            try:
                return propagate(*args, **kwargs)
            finally:
                self.looks_away = before

        with patch.object(ShardingPropagator, "_propagate_tensor_meta_non_cached", unseen):
            yield


@contextmanager
def fake_ranks(ranks: int) -> Iterator[None]:
    """Be rank 0 of a fake process group."""
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def trace(arch: Architecture, layout: Layout) -> Traced:
    """Return the memory of rank 0 for one micro-batch of one sequence."""
    with fake_ranks(layout.dp * layout.tp):
        mesh = init_device_mesh("cpu", (layout.dp, layout.tp), mesh_dim_names=("dp", "tp"))
        dp_mesh, tp_mesh = mesh["dp"], mesh["tp"]
        with torch.device("meta"):
            model = Decoder(arch)
        if layout.tp > 1:
            cut_over_tp(model, tp_mesh)
        if arch.tied_embeddings:
            model.tie()
        recompute(model, layout.recompute)
        shard(model, dp_mesh, tied=arch.tied_embeddings)
        with FakeTensorMode(allow_non_fake_inputs=True):
            return _traced(model, layout, tp_mesh)


def _traced(model: nn.Module, layout: Layout, tp_mesh: DeviceMesh) -> Traced:
    model.to_empty(device="cpu")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    tokens = torch.zeros((1, layout.seq_len), dtype=torch.long)
    tracker = _Tracker(model, optimizer)
    with tracker, tracker.without_shape_propagation():
        states = _bytes(tracker.get_tracker_snapshot("current"), STATES)
        logits = model(tokens)
        kept = _bytes(tracker.get_tracker_snapshot("current"), PASSING) - _local(logits).nbytes
        with loss_parallel() if layout.tp > 1 else nullcontext():
            loss = _loss(logits, tokens.flatten(), tp_mesh)
            del logits
            loss.backward()
        optimizer.step()
    peak = tracker.get_tracker_snapshot("peak")
    return Traced(
        states_bytes=states,
        kept_bytes=kept,
        buffers_bytes=tracker.buffers_bytes,
        peak_bytes=_bytes(peak, ("Total",)),
    )


def _loss(logits: Tensor, labels: Tensor, tp_mesh: DeviceMesh) -> Tensor:
    """Return the cross-entropy of logits in fp32, over vocabulary shards where tp cuts them."""
    whole = DTensor.from_local(labels, tp_mesh, [Replicate()]) if isinstance(logits, DTensor) else labels
    return functional.cross_entropy(logits.flatten(0, 1).float(), whole, reduction="sum")


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _bytes(snapshot: Mapping[Any, Mapping[Any, int]], kinds: tuple[Any, ...]) -> int:
    (device,) = snapshot.values()
    return sum(device.get(kind, 0) for kind in kinds)
