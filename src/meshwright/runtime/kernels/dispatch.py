"""To the experts and back: rows sent to the experts that a router chose, results weighed and added up by token.

What the router chose goes with a micro-batch as ``Routes``, from dispatch to combine and back. Backward the way is the
same the other way round: combine sends each token's gradient, weighed, to its experts, and finds the gradients of the
weights from the results that it kept; dispatch adds up what comes back by token, and hands the router the gradient of
its logits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from meshwright.model.operators import Combine, Dispatch
from meshwright.model.running import CORRECTION
from meshwright.program.exchange import EP, exchange_form
from meshwright.program.items import Collective
from meshwright.program.program import expert_order
from meshwright.runtime.choice_counts import summed
from meshwright.runtime.communicator import EXPERT_RANKS, SEQUENCE_RANKS, Communicator
from meshwright.runtime.kernels.balance import Balance
from meshwright.runtime.kernels.capacity import Admission, Sent
from meshwright.runtime.kernels.choosing import Choosing
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.routes import (
    ETP,
    Place,
    Routes,
    gathered,
    order_of,
    summed_over_etp,
)
from meshwright.runtime.kernels.travel import FORMS
from meshwright.runtime.kernels.travel.way import Way
from meshwright.runtime.visit import Visit

DISPATCH = "dispatch"
Step = Callable[[Collective, torch.Tensor], Exchange]


def routes_of(visit: Visit) -> Routes:
    """What the router of a block chose for the micro-batch of a visit."""
    routes = visit.others[DISPATCH].routes
    assert routes is not None, "nothing was dispatched"
    return routes


def way_of(visit: Visit) -> Way:
    """The way that what it chose goes."""
    way = visit.others[DISPATCH].way
    assert way is not None, "nothing was dispatched"
    return way


def to_experts(
    routes: Routes, communicator: Communicator, item: Collective, rows: torch.Tensor, over_ep: Step
) -> Exchange:
    """A step of the way to the experts; behind the last one rows are sorted by expert."""
    if item.axes == EP:
        rows = yield from over_ep(item, rows)
    else:
        rows = yield from gathered(communicator, item, rows, routes.parts)
    is_last = item.axes == ETP or len(routes.counts) == 1
    return rows[routes.sorting] if is_last else rows


def from_experts(
    routes: Routes, communicator: Communicator, item: Collective, rows: torch.Tensor, over_ep: Step
) -> Exchange:
    """A step of the way back; before the first one rows are put in the order in which they came."""
    if item.axes == ETP or len(routes.counts) == 1:
        rows = rows[routes.unsorting]
    if item.axes == EP:
        return (yield from over_ep(item, rows))
    return (yield from summed_over_etp(communicator, item, rows, routes.parts, routes.here.etp))


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

    @cached_property
    def admission(self) -> Admission | None:
        """Who has a place where experts have a capacity."""
        capacity = self.setting.shape.capacity
        return None if capacity is None else Admission(self.op, self.setting, capacity)

    def forward(self, x: Value, visit: Visit) -> torch.Tensor:
        """((sequence, batch, width), (sequence, batch, experts)) → (rows, width)."""
        tokens, logits = x
        if logits is not None:  # what only runs again goes where it went before
            visit.routes = self._routes(logits.flatten(0, 1), logits.shape[1])
            visit.way = self._way(visit.routes)
        if visit.keep.inputs and not visit.keep.inner:
            visit.kept["input"] = tokens
        return way_of(visit).leave(tokens)

    def again(self, visit: Visit) -> torch.Tensor:
        """The same rows, from the tokens that were kept."""
        return way_of(visit).leave(visit.kept.pop("input"))

    def restore(self, x: Value, visit: Visit) -> None:
        """It keeps no input but to run again."""

    def input_gradient(self, g: torch.Tensor, visit: Visit) -> Value:
        """The gradients of tokens and logits."""
        routes = routes_of(visit)
        of_tokens = way_of(visit).arrive(g)
        assert routes.weights_gradient is not None
        tokens, batch = -1, visit.batch.tokens.shape[1]
        of_logits = self.choosing.gradient(routes.logits, routes.experts, routes.weights_gradient)
        if self.balance is not None:
            loss, of_balance = self.balance.of_tokens(routes, batch)
            self.setting.tally.loss = self.setting.tally.loss + loss
            of_logits += of_balance
        self.setting.tally.count(self._correction, routes.experts, self.op.experts, routes.dropped)
        visit.routes = visit.way = None
        return (
            of_tokens.unflatten(0, (tokens, batch)),
            of_logits.unflatten(0, (tokens, batch)),
        )

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: Visit) -> Exchange:
        """To the experts; the gradients back."""
        way, communicator = way_of(visit), self.setting.communicator
        if item.phase == "I":
            return (yield from from_experts(routes_of(visit), communicator, item, x, way.back))
        return (yield from to_experts(routes_of(visit), communicator, item, x, way.out))

    @property
    def _correction(self) -> str:
        """The full name of the layer's correction, where its router has one."""
        return f"{self.setting.unit_name}.{CORRECTION}"

    def _routes(self, logits: torch.Tensor, batch: int) -> Routes:
        experts = self.choosing.experts(logits, self.setting.buffers.get(self._correction))
        weights = self.choosing.weights(logits, experts)
        places = experts if self._places is None else self._places[experts]
        sent = Sent(order_of(places), torch.bincount(places.flatten(), minlength=self.op.experts))
        if self.admission is not None:
            sent = self.admission.sent(places, weights, batch)
        weights, counts = weights.to(self.setting.precision.compute), self._counts(sent.counts)
        limited = self.admission is not None
        found = Routes(experts, places, weights, logits, sent.order, counts, self._here, limited)
        if self.balance is not None:
            own = self.balance.choices(experts, self.op.experts, batch)
            found.choices = summed(self.setting.communicator, own, SEQUENCE_RANKS)
        return found

    def _way(self, routes: Routes) -> Way:
        form = exchange_form(self.setting.shape, self.setting.communicator.program.stack)
        return FORMS[form](routes, self.setting.communicator, self.setting.precision.statistic)

    @cached_property
    def _places(self) -> torch.Tensor | None:
        """Where each expert stands among those of all ep ranks, if not at its number."""
        communicator = self.setting.communicator
        order = expert_order(communicator.program, self.setting.layer)
        return None if order is None else torch.tensor(order, device=communicator.device).argsort()

    @cached_property
    def _here(self) -> Place:
        communicator = self.setting.communicator
        return Place(communicator.place_in(ETP), communicator.place_in(EP))

    def _counts(self, own: torch.Tensor) -> torch.Tensor:
        """Rows by etp rank, ep rank and expert's place of all ranks that have them between them, on the host."""
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
        y = way_of(visit).weighed(rows, visit)
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
        of_rows = way_of(visit).unweighed(g, visit)
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
        way, communicator, routes = way_of(visit), self.setting.communicator, routes_of(visit)
        rows, *beside = x if isinstance(x, tuple) else (x,)
        if item.phase == "I":
            rows = yield from to_experts(
                routes, communicator, item, rows, partial(way.gradients, visit=visit)
            )
        else:
            rows = yield from from_experts(
                routes, communicator, item, rows, partial(way.results, visit=visit)
            )
        return (rows, *beside) if beside else rows
