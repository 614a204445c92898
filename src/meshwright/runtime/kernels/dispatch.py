"""To the experts and back: rows sent to the experts that a router chose, results weighed and added up by token.

What the router chose goes with a micro-batch as ``Routes``, from dispatch to combine and back. Backward the way is the
same the other way round: combine sends each token's gradient, weighed, to its experts, and finds the gradients of the
weights from the results that it kept; dispatch adds up what comes back by token, and hands the router the gradient of
its logits.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from meshwright.model.operators import Combine, Dispatch
from meshwright.model.running import CORRECTION
from meshwright.program.items import Collective
from meshwright.runtime.choice_counts import summed
from meshwright.runtime.communicator import EXPERT_RANKS, SEQUENCE_RANKS
from meshwright.runtime.kernels.balance import Balance
from meshwright.runtime.kernels.choosing import Choosing
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.routes import EP, ETP, Place, Routes, from_experts, order_of, to_experts
from meshwright.runtime.visit import Visit

DISPATCH = "dispatch"


def routes_of(visit: Visit) -> Routes:
    """What the router of a block chose for the micro-batch of a visit."""
    routes = visit.others[DISPATCH].routes
    assert routes is not None, "nothing was dispatched"
    return routes


@dataclass(frozen=True)
class DispatchKernel:
    """Tokens and logits → rows in the order of their experts."""

    op: Dispatch
    setting: Setting

    @cached_property
    def choosing(self) -> Choosing:
        """The router's rule."""
        routing = self.setting.numerics.routing
        assert routing is not None
        return Choosing(routing, self.op.experts_per_token, self.setting.precision.statistic)

    @cached_property
    def balance(self) -> Balance | None:
        """The layer's balancing loss."""
        routing, program = self.setting.numerics.routing, self.setting.communicator.program
        if routing is None or routing.balance is None:
            return None
        return Balance(routing.balance, routing, program, self.setting.precision.statistic)

    def forward(self, x: Value, visit: Visit) -> torch.Tensor:
        """((sequence, batch, width), (sequence, batch, experts)) → (rows, width)."""
        tokens, logits = x
        if logits is not None:  # what only runs again goes where it went before
            visit.routes = self._routes(logits.flatten(0, 1), logits.shape[1])
        if visit.keep.inputs and not visit.keep.inner:
            visit.kept["input"] = tokens
        return routes_of(visit).of_tokens(tokens)

    def again(self, visit: Visit) -> torch.Tensor:
        """The same rows, from the tokens that were kept."""
        return routes_of(visit).of_tokens(visit.kept.pop("input"))

    def restore(self, x: Value, visit: Visit) -> None:
        """It keeps no input but to run again."""

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> Value:
        """The gradients of tokens and logits."""
        routes = routes_of(visit)
        assert routes.weights_gradient is not None
        tokens, batch = -1, visit.batch.tokens.shape[1]
        of_logits = self.choosing.gradient(routes.logits, routes.experts, routes.weights_gradient)
        if self.balance is not None:
            loss, of_balance = self.balance.of_tokens(routes, batch)
            self.setting.tally.loss = self.setting.tally.loss + loss
            of_logits += of_balance
        own = torch.bincount(routes.experts.flatten(), minlength=self.op.experts)
        self.setting.tally.count(self._correction, own)
        visit.routes = None
        return (
            routes.by_token(g).sum(1).unflatten(0, (tokens, batch)),
            of_logits.unflatten(0, (tokens, batch)),
        )

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """To the experts; the gradients back."""
        way = from_experts if item.phase == "I" else to_experts
        return (yield from way(routes_of(visit), self.setting.communicator, item, x))

    @property
    def _correction(self) -> str:
        """The full name of the layer's correction, where its router has one."""
        return f"{self.setting.unit_name}.{CORRECTION}"

    def _routes(self, logits: torch.Tensor, batch: int) -> Routes:
        experts = self.choosing.experts(logits, self.setting.buffers.get(self._correction))
        weights = self.choosing.weights(logits, experts).to(self.setting.precision.compute)
        found = Routes(experts, weights, logits, order_of(experts), self._counts(experts), self._here)
        if self.balance is not None:
            own = self.balance.choices(experts, self.op.experts, batch)
            found.choices = summed(self.setting.communicator, own, SEQUENCE_RANKS)
        return found

    @cached_property
    def _here(self) -> Place:
        communicator = self.setting.communicator
        return Place(communicator.place_in(ETP), communicator.place_in(EP))

    def _counts(self, experts: torch.Tensor) -> torch.Tensor:
        """Rows by etp rank, ep rank and expert of all ranks that have the experts between them, on the host."""
        own = torch.bincount(experts.flatten(), minlength=self.op.experts)
        shape = self.setting.shape
        table = own.new_zeros((int(shape.etp), int(shape.ep), self.op.experts))
        table[self._here] = own
        return summed(self.setting.communicator, table, EXPERT_RANKS).cpu()


@dataclass(frozen=True)
class CombineKernel:
    """Σ weight · result by token, and what stands beside the experts."""

    op: Combine
    setting: Setting

    def forward(self, x: Value, visit: Visit) -> torch.Tensor:
        """Rows in the order of experts, with (sequence, batch, width) of shared experts and their gate's logits."""
        rows, *beside = x if isinstance(x, tuple) else (x,)
        if visit.keep.inputs:
            visit.kept["input"] = rows
        routes = routes_of(visit)
        y = torch.einsum("tkh,tk->th", routes.by_token(rows), routes.weights)
        y = y.unflatten(0, (-1, visit.batch.tokens.shape[1]))
        if not beside or beside[0] is None:
            return y
        if len(beside) == 1:
            return y + beside[0]
        shared, gate = beside
        visit.kept |= {"shared": shared, "gate": gate}
        return y + shared * gate.sigmoid()

    def again(self, visit: Visit) -> torch.Tensor:
        """A row does not begin with it."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: Visit) -> None:
        """What it kept comes back by running again, with its exchanges."""
        raise AssertionError(self.op.name)

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> Value:
        """Gradients of the rows, of what stands beside, and, for the router, of the weights."""
        routes, rows = routes_of(visit), visit.kept.pop("input")
        of_rows = routes.of_tokens(g)
        found = (rows.to(self.setting.precision.statistic) * of_rows).sum(-1)
        routes.weights_gradient = found[routes.back].view_as(routes.weights)
        of_rows = of_rows * routes.weights.flatten()[routes.order][:, None]
        if len(self.op.reads) == 1:
            return of_rows
        if "gate" not in visit.kept:
            return of_rows, g
        shared, open_ = visit.kept.pop("shared"), visit.kept.pop("gate").sigmoid()
        of_gate = (g * shared).sum(-1, keepdim=True) * open_ * (1 - open_)
        return of_rows, g * open_, of_gate

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def exchange(self, item: Collective, x: Value, visit: Visit) -> Exchange:
        """Rows back from the experts; gradients to them. What stands beside the rows stays here."""
        way = to_experts if item.phase == "I" else from_experts
        rows, *beside = x if isinstance(x, tuple) else (x,)
        rows = yield from way(routes_of(visit), self.setting.communicator, item, rows)
        return (rows, *beside) if beside else rows
