"""Compute the same steps in one process in plain PyTorch: autograd, ``clip_grad_norm_``, the plan's optimizer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.fx.experimental.symbolic_shapes  # the first backward pass imports it

from meshwright.model.named_tensors import named_parameters
from meshwright.runtime.reference.decoder import reference_choices, reference_corrections, reference_loss
from meshwright.runtime.reference.expert_capacity import Bounded
from meshwright.runtime.verify.reference_base_changes import changed_base, own_products, replica_parts
from meshwright.runtime.verify.reference_optimizer import ReferenceOptimizer
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
    loss = _loss(trial, tensors, batch)
    loss.backward()
    return loss.item(), {name: _gradient(tensor) for name, tensor in trained.items()}


def reference_steps(trial: VerifyCase) -> Steps:
    """Return the expected result of a case."""
    return _two_loss_steps(trial) if trial.program.stack.optimizer.forward_only else _gradient_steps(trial)


def _two_loss_steps(trial: VerifyCase) -> Steps:
    tensors, found, chosen = trial.tensors(), [], []
    for step, batch in enumerate(trial.batches()):
        chosen.append(_chosen(trial, tensors, batch))
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
    return _loss(trial, tensors, batch).item()


def _gradient_steps(trial: VerifyCase) -> Steps:
    tensors, options = stored_tensors(trial, trial.tensors()), trial.options
    trained = _trained(trial, tensors)
    optimizer = ReferenceOptimizer(trial.program, options, trained)
    losses, norms, gradients, chosen = [], [], [], []
    bounded = trial.bounded
    for batch in trial.batches():
        _forget(trained)
        loss = _loss(trial, tensors, batch)
        loss.backward()
        gradients.append({name: _gradient(tensor).clone() for name, tensor in trained.items()})
        norms.append(torch.nn.utils.clip_grad_norm_(list(trained.values()), options.clip or torch.inf).item())
        losses.append(loss.item())
        chosen.append(_chosen(trial, tensors, batch))
        corrections = reference_corrections(trial.model, tensors, batch.tokens, batch.begins, bounded)
        products = own_products(trial.model, tensors)
        optimizer.step()
        tensors |= corrections
        tensors |= changed_base(trial.model, tensors, products)
    frozen = named_parameters(trial.model).keys() - trained.keys() - own_products(trial.model, tensors).keys()
    parameters = {name: tensor.detach() for name, tensor in tensors.items() if name not in frozen}
    return Steps(tuple(losses), tuple(norms), tuple(gradients), parameters, tuple(chosen), optimizer.slack)


def stored_tensors(trial: VerifyCase, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors with quantised matrices as they are after they were stored."""
    named = named_parameters(trial.model)
    types = {name: p.storage for name, p in named.items() if p.storage in QUANTISERS}
    return {**tensors, **{name: rounded(tensors[name], str(storage)) for name, storage in types.items()}}


def _trained(trial: VerifyCase, tensors: Tensors) -> dict[str, torch.Tensor]:
    """Return the parameters that have gradients."""
    named = named_parameters(trial.model).items()
    return {name: tensors[name].requires_grad_() for name, parameter in named if parameter.trained}


def _loss(trial: VerifyCase, tensors: Tensors, batch: Batch) -> torch.Tensor:
    parts = replica_parts(trial.program, trial.model, tensors)
    if not parts:
        return _loss_of(trial, tensors, batch, batch.counted, trial.bounded)
    losses = []
    for own, rows in parts:
        part = batch.of(rows)
        bounded = trial.bounded and replace(trial.bounded, scopes=trial.bounded.scopes[rows])
        losses.append(_loss_of(trial, own, part, batch.counted, bounded, share=1 / len(parts)))
    return torch.stack(losses).sum()


def _loss_of(
    trial: VerifyCase,
    tensors: Tensors,
    batch: Batch,
    counted: int,
    bounded: Bounded | None,
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
        bounded,
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
def _chosen(trial: VerifyCase, tensors: Tensors, batch: Batch) -> Experts:
    """Return the routers' choices if copies are deduplicated or choices dropped; dropped ones are ``NOWHERE``."""
    if not (trial.program.stack.deduplicates_exchange or trial.bounded):
        return ()
    choices = reference_choices(trial.model, tensors, batch.tokens, batch.begins, trial.bounded)
    return [c.experts if c.kept is None else c.experts.masked_fill(~c.kept, NOWHERE) for c in choices]


def _forget(tensors: Tensors) -> None:
    for tensor in tensors.values():
        tensor.grad = None


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
