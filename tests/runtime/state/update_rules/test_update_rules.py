"""Update rules of single elements: PyTorch's bits where it has the rule, the paper's formula elsewhere."""

import pytest
import torch

from meshwright.runtime.state.update_rules import UPDATE_RULES
from meshwright.runtime.state.update_rules.update_rule import StepValues
from meshwright.workload.optimizer_choice import Optimizer
from meshwright.workload.optimizers import OPTIMIZERS

LR, DECAY, STEPS = 1e-2, 0.1, 4


def drawn(seed):
    """A parameter and its gradients."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(200, generator=generator), torch.randn(STEPS, 200, generator=generator)


def stepped(optimizer, cut=200, dtype=torch.float32):
    """A parameter after all steps of our rule, in two parts."""
    parameter, gradients = (tensor.to(dtype) for tensor in drawn(0))
    moments = {key: torch.zeros(200, dtype=dtype) for key in optimizer.own_moments}
    pieces = [slice(0, cut), slice(cut, 200)]
    for number, gradient in enumerate(gradients, start=1):
        UPDATE_RULES[optimizer.name](
            [parameter[piece] for piece in pieces],
            [gradient[piece] for piece in pieces],
            {key: [moment[piece] for piece in pieces] for key, moment in moments.items()},
            StepValues(number, LR, DECAY, optimizer.options),
        )
    return parameter


def stepped_by_torch(kind, **options):
    parameter, gradients = drawn(0)
    parameter.requires_grad_()
    theirs = kind([parameter], lr=LR, weight_decay=DECAY, **options)
    for gradient in gradients:
        parameter.grad = gradient
        theirs.step()
    return parameter.detach()


@pytest.mark.parametrize(
    ("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)], ids=["plain", "momentum", "nesterov"]
)
def test_sgd_is_torchs(momentum, nesterov):
    found = stepped(Optimizer("sgd", (("momentum", momentum), ("nesterov", nesterov))))
    assert torch.equal(found, stepped_by_torch(torch.optim.SGD, momentum=momentum, nesterov=nesterov))


def test_adamw_is_torchs():
    found = stepped(Optimizer("adamw", (("betas", (0.8, 0.99)),)))
    assert torch.equal(found, stepped_by_torch(torch.optim.AdamW, betas=(0.8, 0.99), fused=True))


def test_lion_is_the_formula_of_its_paper():
    parameter, gradients = (tensor.double() for tensor in drawn(0))
    momentum = torch.zeros_like(parameter)
    for gradient in gradients:
        change = torch.sign(0.9 * momentum + 0.1 * gradient)
        parameter = parameter - LR * (change + DECAY * parameter)
        momentum = 0.99 * momentum + 0.01 * gradient
    torch.testing.assert_close(stepped(Optimizer("lion")).double(), parameter, rtol=1e-6, atol=1e-6)


def test_qh_adamw_is_the_formula_of_its_paper():
    parameter, gradients = (tensor.double() for tensor in drawn(0))
    first = second = torch.zeros_like(parameter)
    for number, gradient in enumerate(gradients, start=1):
        first, second = 0.999 * first + 0.001 * gradient, 0.99 * second + 0.01 * gradient**2
        change = 0.6 * first / (1 - 0.999**number) + 0.4 * gradient
        square = 0.8 * second / (1 - 0.99**number) + 0.2 * gradient**2
        parameter = parameter - LR * (change / (square.sqrt() + 1e-8) + DECAY * parameter)
    found = stepped(Optimizer("qh-adamw", (("omega", (0.4, 0.2)), ("betas", (0.999, 0.99)))))
    torch.testing.assert_close(found.double(), parameter, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("betas", [(0.9, 0.95), (0.999, 0.9999)])
def test_qh_adamw_without_gradient_is_adamw(betas):
    found = stepped(Optimizer("qh-adamw", (("omega", (0.0, 0.0)), ("betas", betas))), dtype=torch.float64)
    adamw = stepped(Optimizer("adamw", (("betas", betas),)), dtype=torch.float64)
    torch.testing.assert_close(found, adamw, rtol=1e-14, atol=1e-15)
    other = stepped(Optimizer("qh-adamw", (("omega", (0.1, 0.0)), ("betas", betas))), dtype=torch.float64)
    assert not torch.allclose(found, other)


@pytest.mark.parametrize("name", UPDATE_RULES)
def test_parts_are_updated_as_the_whole(name):
    assert torch.equal(stepped(Optimizer(name), 200), stepped(Optimizer(name), 77))


def test_every_optimizer_of_a_plan_has_a_rule():
    by_element = {name for name, kind in OPTIMIZERS.items() if not (kind.of_matrices or kind.forward_only)}
    assert UPDATE_RULES.keys() == by_element
