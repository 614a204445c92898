"""Compute the same steps in one process in plain PyTorch: autograd, ``clip_grad_norm_``, the plan's optimizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.fx.experimental.symbolic_shapes  # the first backward pass imports it

from meshwright.model.named_tensors import named_parameters
from meshwright.program.program import Program
from meshwright.program.synchronisation.encoded_program import (
    encodes_inside_steps,
    micro_batches_reduced_together,
)
from meshwright.program.synchronisation.exchange_weights import DATA_AXES
from meshwright.program.synchronisation.islands import islands
from meshwright.program.synchronisation.replica_arrivals import (
    arrival_weights,
    late_replicas,
    replica_labels,
)
from meshwright.runtime.batch.batch_sharding import replica_shares, sequence_indices
from meshwright.runtime.batch.label_counts import labels_by_replica
from meshwright.runtime.reference.decoder import reference_choices, reference_corrections, reference_loss
from meshwright.runtime.reference.feedforward import Sending
from meshwright.runtime.synchronisation.arrivals import SeededArrivals
from meshwright.runtime.verify.reference_base_changes import changed_base, own_products, replica_parts
from meshwright.runtime.verify.reference_exchanges import VirtualIslands
from meshwright.runtime.verify.reference_optimizer import ReferenceOptimizer
from meshwright.runtime.verify.reference_reductions import VirtualReductions
from meshwright.runtime.verify.reference_two_losses import GRADIENT, LOSSES, two_loss_step
from meshwright.runtime.verify.routed_traffic import NOWHERE, Experts
from meshwright.runtime.verify.verify_case import Batch, VerifyCase
from meshwright.runtime.weights.base_quantisation import QUANTISERS, rounded

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Steps:
    """Reference results: per step the loss, the gradient norm and all gradients before clipping; the final tensors
    without frozen ones.

    ``slack``: by how much parameters may differ, where rounding decides. ``chosen``: per step the router's choices in
    each routed layer, if the Program's exchanges depend on them. Without backward passes losses are means of the two,
    norms are magnitudes of the projected gradients, and ``gradients`` hold both losses and these.
    """

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    gradients: tuple[Tensors, ...]
    parameters: Tensors
    chosen: tuple[Experts, ...]
    slack: Tensors


def reference_gradients(trial: VerifyCase, tensors: Tensors, batch: Batch) -> tuple[float, Tensors]:
    """Return the loss of a batch under these tensors, and the gradients of all parameters."""
    trained = _trained(trial, tensors)
    loss = _loss(trial, tensors, batch, trial.sending)
    loss.backward()
    return loss.item(), {name: _gradient(tensor) for name, tensor in trained.items()}


def reference_steps(trial: VerifyCase) -> Steps:
    """Return the expected result of a case without islands."""
    return _two_loss_steps(trial) if trial.program.stack.optimizer.forward_only else _gradient_steps(trial)


def _two_loss_steps(trial: VerifyCase) -> Steps:
    tensors, found, chosen = trial.tensors(), [], []
    for step, batch in enumerate(trial.batches()):
        chosen.append(_chosen(trial, tensors, batch, trial.sending))
        found.append(two_loss_step(trial, tensors, step, partial(_number, trial, batch)))
    return Steps(
        tuple(float(of[LOSSES].mean()) for of in found),
        tuple(float(of[GRADIENT].abs()) for of in found),
        tuple(found),
        tensors,
        tuple(chosen),
        {},
    )


def _number(trial: VerifyCase, batch: Batch, tensors: Tensors) -> float:
    return _loss(trial, tensors, batch, trial.sending).item()


class _Replica:
    """A model in one process, with its optimizer; it takes steps on its part of each batch."""

    def __init__(self, trial: VerifyCase, rows: list[int] | None = None, ranks: Sequence[int] = ()) -> None:
        self.trial, self.rows = trial, rows
        self.tensors = stored_tensors(trial, trial.tensors())
        self.trained = _trained(trial, self.tensors)
        self.optimizer = ReferenceOptimizer(trial.program, trial.options, self.trained)
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.gradients: list[Tensors] = []
        self.chosen: list[Experts] = []
        self.sending = trial.sending
        if rows is not None and self.sending is not None:
            self.sending = replace(self.sending, scopes=self.sending.scopes[rows])
        program = trial.program
        self.ranks = ranks or tuple(range(program.parts.ranks))
        self.reductions = VirtualReductions(program, self.ranks) if encodes_inside_steps(program) else None
        self.late = late_replicas(program)
        self.arrivals = None if self.late is None else SeededArrivals(self.late)

    def step(self, whole: Batch) -> None:
        """Take a step."""
        trial, tensors = self.trial, self.tensors
        batch = whole if self.rows is None else whole.of(self.rows)
        _forget(self.trained)
        if self.reductions is None:
            loss = _loss(trial, tensors, batch, self.sending)
            loss.backward()
        else:
            loss = self._encoded_gradients(self.reductions, whole, batch.counted)
        self.gradients.append({name: _gradient(tensor).clone() for name, tensor in self.trained.items()})
        limit = trial.options.clip or torch.inf
        self.norms.append(torch.nn.utils.clip_grad_norm_(list(self.trained.values()), limit).item())
        self.losses.append(loss.item())
        self.chosen.append(_chosen(trial, tensors, batch, self.sending))
        corrections = reference_corrections(trial.model, tensors, batch.tokens, batch.begins, self.sending)
        products = own_products(trial.model, tensors)
        self.optimizer.step()
        tensors |= corrections
        tensors |= changed_base(trial.model, tensors, products)

    def _encoded_gradients(self, reductions: VirtualReductions, whole: Batch, counted: int) -> torch.Tensor:
        """Set the gradients as virtual ranks reduce them, and return the loss."""
        trial, program = self.trial, self.trial.program
        part, together = program.parts[0], micro_batches_reduced_together(program)
        rows = {
            reductions.replica_of(rank): list(sequence_indices(program, part, rank)) for rank in self.ranks
        }
        factors = {
            reductions.replica_of(rank): [share.factor for share in replica_shares(program, part, rank)]
            for rank in self.ranks
        }
        weights = self._weights(reductions, whole)
        seen = reductions.seen(self.tensors, self.optimizer.steps)
        losses = []
        for first in range(0, program.micro_batches, together):
            found = {}
            for replica, of_replica in rows.items():
                tensors = {name: tensor.detach().clone() for name, tensor in seen.items()}
                trained = _trained(trial, tensors)
                batches = of_replica[first : first + together]
                each = len(batches) // len(factors[replica])
                for place, factor in enumerate(factors[replica]):
                    own = [row for of in batches[place * each : (place + 1) * each] for row in of]
                    sending = trial.sending and replace(trial.sending, scopes=trial.sending.scopes[own])
                    share = each / (len(rows) * program.micro_batches) * len(factors[replica])
                    loss = factor * _loss_of(trial, tensors, whole.of(own), counted, sending, share)
                    loss.backward()
                    losses.append(weights[replica] * loss.detach())
                found[replica] = {name: _gradient(tensor) for name, tensor in trained.items()}
            for name, gradient in reductions.reduce(found).items():
                own_grad = self.trained[name].grad
                self.trained[name].grad = gradient if own_grad is None else own_grad + gradient
        return torch.stack(losses).sum()

    def _weights(self, reductions: VirtualReductions, whole: Batch) -> dict[tuple[int, int], float]:
        """Return the weight of each replica's loss, and set the weights of a step's reductions."""
        program, late = self.trial.program, self.late
        places = {reductions.replica_of(rank) for rank in self.ranks}
        if late is None or self.arrivals is None:
            return dict.fromkeys(places, 1.0)
        table = labels_by_replica(program, whole.labels)
        assert table is not None
        labels = replica_labels(program, late.said.axis, table.tolist(), min(places))
        reductions.participation.take(
            arrival_weights(late, labels, self.arrivals.settle(self.optimizer.steps))
        )
        at = DATA_AXES.index(late.said.axis)
        return {place: reductions.participation.weights[place[at]] for place in places}

    def value(self, state: str, name: str) -> torch.Tensor:
        """Return a parameter or a moment, which may be changed."""
        return self.trained[name].data if state == "parameter" else self.optimizer.moment(name, state)

    def steps(self) -> Steps:
        """Return the results so far."""
        trial, tensors = self.trial, self.tensors
        untrained = named_parameters(trial.model).keys() - self.trained.keys()
        frozen = untrained - own_products(trial.model, tensors).keys()
        parameters = {name: tensor.detach() for name, tensor in tensors.items() if name not in frozen}
        return Steps(
            tuple(self.losses),
            tuple(self.norms),
            tuple(self.gradients),
            parameters,
            tuple(self.chosen),
            self.optimizer.slack,
        )


def _gradient_steps(trial: VerifyCase) -> Steps:
    replica = _Replica(trial)
    for batch in trial.batches():
        replica.step(batch)
    return replica.steps()


def island_steps(trial: VerifyCase) -> list[Steps]:
    """Return the expected results of each island, between which the plan's exchanges are made."""
    program = trial.program
    of_islands = islands(program.parts[0].grid, program.loose)
    replicas = [
        _Replica(trial, rows, ranks) for rows, ranks in zip(_rows_by_island(program), of_islands, strict=True)
    ]
    between = VirtualIslands(
        program, lambda island, state, name: replicas[island].value(state, name), rates=trial.rates
    )
    for number, batch in enumerate(trial.batches(), 1):
        for replica in replicas:
            replica.step(batch)
        labels = labels_by_replica(program, batch.labels)
        assert labels is not None
        between.after_step(number, labels)
    return [replica.steps() for replica in replicas]


def _rows_by_island(program: Program) -> list[list[int]]:
    """Return the sequences of each island."""
    part = program.parts[0]
    return [
        sorted({row for rank in ranks for rows in sequence_indices(program, part, rank) for row in rows})
        for ranks in islands(part.grid, program.loose)
    ]


def stored_tensors(trial: VerifyCase, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors with quantised matrices as they are after they were stored."""
    named = named_parameters(trial.model)
    types = {name: p.storage for name, p in named.items() if p.storage in QUANTISERS}
    return {**tensors, **{name: rounded(tensors[name], str(storage)) for name, storage in types.items()}}


def _trained(trial: VerifyCase, tensors: Tensors) -> dict[str, torch.Tensor]:
    """Return the parameters that have gradients."""
    named = named_parameters(trial.model).items()
    return {name: tensors[name].requires_grad_() for name, parameter in named if parameter.trained}


def _loss(trial: VerifyCase, tensors: Tensors, batch: Batch, sending: Sending | None = None) -> torch.Tensor:
    parts = replica_parts(trial.program, trial.model, tensors)
    if not parts:
        return _loss_of(trial, tensors, batch, batch.counted, sending)
    losses = []
    for own, rows in parts:
        part = batch.of(rows)
        within = sending and replace(sending, scopes=sending.scopes[rows])
        losses.append(_loss_of(trial, own, part, batch.counted, within, share=1 / len(parts)))
    return torch.stack(losses).sum()


def _loss_of(
    trial: VerifyCase,
    tensors: Tensors,
    batch: Batch,
    counted: int,
    sending: Sending | None,
    share: float = 1.0,
) -> torch.Tensor:
    """Return the loss of sequences that are a ``share`` of a batch of so many ``counted`` labels."""
    together = min(int(part.shape.micro_batch) for part in trial.program.parts)
    return reference_loss(
        trial.model,
        tensors,
        batch.tokens,
        batch.labels,
        counted,
        together,
        batch.begins,
        sending,
        share,
        encoder=_as_parameters(batch.encoder, tensors),
        images=trial.images,
    )


def _as_parameters(given: torch.Tensor | None, tensors: Tensors) -> torch.Tensor | None:
    """Return an encoder's input with patches in the element type of the parameters."""
    if given is None or not given.is_floating_point():
        return given
    return given.to(tensors["embed.patch_embed.weight"].dtype)


@torch.no_grad()
def _chosen(trial: VerifyCase, tensors: Tensors, batch: Batch, sending: Sending | None) -> Experts:
    """Return the routers' choices if exchanges depend on them; those without a row of their own are ``NOWHERE``."""
    if not (trial.program.stack.deduplicates_exchange or sending):
        return ()
    choices = reference_choices(trial.model, tensors, batch.tokens, batch.begins, sending)
    return [c.experts if c.sent is None else c.experts.masked_fill(~c.sent, NOWHERE) for c in choices]


def _forget(tensors: Tensors) -> None:
    for tensor in tensors.values():
        tensor.grad = None


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
