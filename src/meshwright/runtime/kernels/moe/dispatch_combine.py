"""MoE dispatch and combine: send tokens to their routed experts; weigh the results and sum them by token.

The router's choices for a micro-batch are a ``TokenPermutation``, used from dispatch to combine and in the backward
pass. Backward reverses the direction: combine sends each token's weighted gradient to its experts, and computes the
gradients of the weights from the results that it saved; dispatch sums the returned gradients by token, and returns the
gradient of the router's logits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch

from meshwright.model.named_tensors import CORRECTION
from meshwright.model.operators.operator_types import Combine, Dispatch
from meshwright.program.expert_dispatch.dispatch_forms import EP, exchange_form
from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.comm.process_groups import EXPERT_RANKS, SEQUENCE_RANKS
from meshwright.runtime.comm.routing_count_exchange import sum_router_counts
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.moe.expert_capacity import Admission, Sent
from meshwright.runtime.kernels.moe.load_balancing_loss import Balance
from meshwright.runtime.kernels.moe.token_buckets import Bucketing
from meshwright.runtime.kernels.moe.token_permutation import (
    ETP,
    Place,
    TokenPermutation,
    gathered,
    order_of,
    summed_over_etp,
)
from meshwright.runtime.kernels.moe.top_k_routing import TopKRouting
from meshwright.runtime.kernels.token_dispatch import FORMS
from meshwright.runtime.kernels.token_dispatch.interface import TokenDispatch

DISPATCH = "dispatch"
Step = Callable[[Collective, torch.Tensor], Exchange]


def routes_of(visit: OperatorCall) -> TokenPermutation:
    """Return the router's choices for the micro-batch of an operator call."""
    routes = visit.others[DISPATCH].routes
    assert routes is not None, "nothing was dispatched"
    return routes


def token_dispatch_of(visit: OperatorCall) -> TokenDispatch:
    """Return the token dispatch that carries out these choices."""
    way = visit.others[DISPATCH].way
    assert way is not None, "nothing was dispatched"
    return way


def to_experts(
    routes: TokenPermutation, communicator: Communicator, item: Collective, rows: torch.Tensor, over_ep: Step
) -> Exchange:
    """Run one collective on the way to the experts; after the last one rows are sorted by expert."""
    if item.axes == EP:
        rows = yield from over_ep(item, rows)
    else:
        rows = yield from gathered(communicator, item, rows, routes.parts)
    is_last = item.axes == ETP or len(routes.counts) == 1
    return rows[routes.sorting] if is_last else rows


def from_experts(
    routes: TokenPermutation, communicator: Communicator, item: Collective, rows: torch.Tensor, over_ep: Step
) -> Exchange:
    """Run one collective on the way back; before the first one rows are put into their order of arrival."""
    if item.axes == ETP or len(routes.counts) == 1:
        rows = rows[routes.unsorting]
    if item.axes == EP:
        return (yield from over_ep(item, rows))
    return (yield from summed_over_etp(communicator, item, rows, routes.parts, routes.here.etp))


@dataclass(frozen=True)
class DispatchKernel:
    """Dispatch: tokens and router logits → rows in the order of their experts."""

    op: Dispatch
    setting: Setting

    @cached_property
    def choosing(self) -> TopKRouting:
        """The router's top-k rule."""
        routing = self.setting.numerics.routing
        assert routing is not None
        return TopKRouting(routing, self.op.experts_per_token, self.setting.precision.statistic)

    @cached_property
    def balance(self) -> Balance | None:
        """The layer's load-balancing loss; None if there is none."""
        routing, program = self.setting.numerics.routing, self.setting.communicator.program
        if routing is None or routing.balance is None:
            return None
        return Balance(routing.balance, routing, program, self.setting.precision.statistic)

    @cached_property
    def admission(self) -> Admission | None:
        """The rule that admits choices to experts of limited capacity; None without a capacity."""
        capacity = self.setting.shape.capacity
        return None if capacity is None else Admission(self.op, self.setting, capacity)

    @cached_property
    def bucketing(self) -> Bucketing | None:
        """The hashing of tokens; None if each row travels by itself."""
        hashing, setting = self.setting.shape.hashing, self.setting
        if hashing is None:
            return None
        device, dtype = setting.communicator.device, setting.precision.compute
        of = (setting.seed, setting.decoder_layer, self.op.width, self.op.experts)
        return Bucketing(hashing, *of, device, dtype)

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Return the rows to send: ((sequence, batch, width), (sequence, batch, experts)) → (rows, width)."""
        tokens, logits = x
        if logits is not None:  # recomputation reuses the routes of the forward pass
            visit.routes = self._routes(tokens.flatten(0, 1), logits.flatten(0, 1), logits.shape[1])
            visit.way = _dispatch_of(visit.routes, self.setting)
            if self.setting.communicator.program.stack.optimizer.forward_only:
                _count(self, visit.routes, logits.shape[1])
        if visit.keep.inputs and not visit.keep.inner:
            visit.kept["input"] = tokens
        return token_dispatch_of(visit).leave(tokens)

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Return the same rows from the saved tokens."""
        return token_dispatch_of(visit).leave(visit.kept.pop("input"))

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Do nothing: the input is saved only for recomputation."""

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> Value:
        """Return the gradients of tokens and logits; count the choices in the router statistics."""
        routes = routes_of(visit)
        of_tokens = token_dispatch_of(visit).arrive(g)
        assert routes.weights_gradient is not None
        tokens, batch = -1, visit.batch.tokens.shape[1]
        of_logits = self.choosing.gradient(routes.logits, routes.experts, routes.weights_gradient)
        if self.balance is not None:
            loss, of_balance = self.balance.of_tokens(routes, batch)
            self.setting.tally.loss = self.setting.tally.loss + loss
            of_logits += of_balance
        self.setting.tally.count(self.correction, routes.experts, self.op.experts, routes.dropped)
        visit.routes = visit.way = None
        return (
            of_tokens.unflatten(0, (tokens, batch)),
            of_logits.unflatten(0, (tokens, batch)),
        )

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Send rows to the experts, or gradients back."""
        way, communicator = token_dispatch_of(visit), self.setting.communicator
        if item.phase == "I":
            return (yield from from_experts(routes_of(visit), communicator, item, x, way.back))
        return (yield from to_experts(routes_of(visit), communicator, item, x, way.out))

    @property
    def correction(self) -> str:
        """The full name of the layer's correction bias, which not every router has."""
        return f"{self.setting.unit_name}.{CORRECTION}"

    def _routes(self, tokens: torch.Tensor, logits: torch.Tensor, batch: int) -> TokenPermutation:
        experts = self.choosing.experts(logits, self.setting.buffers.get(self.correction))
        weights = self.choosing.weights(logits, experts)
        places = experts if self._places is None else self._places[experts]
        sent = Sent(order_of(places), torch.bincount(places.flatten(), minlength=self.op.experts))
        if self.admission is not None:
            sent = self.admission.sent(places, weights, batch)
        buckets = None
        if self.bucketing is not None:
            buckets = self.bucketing.buckets(tokens, places, sent.order)
            sent = sent._replace(counts=buckets.counts)
        weights, counts = weights.to(self.setting.precision.compute), self._counts(sent.counts)
        limited = self.admission is not None
        found = TokenPermutation(
            experts, places, weights, logits, sent.order, counts, self._here, limited, buckets=buckets
        )
        if self.balance is not None:
            own = self.balance.choices(experts, self.op.experts, batch)
            found.choices = sum_router_counts(self.setting.communicator, own, SEQUENCE_RANKS)
        return found

    @cached_property
    def _places(self) -> torch.Tensor | None:
        """Each expert's position in the order of all ep ranks; None if that is its number."""
        communicator = self.setting.communicator
        order = self.setting.part.expert_order(self.setting.layer)
        return None if order is None else torch.tensor(order, device=communicator.device).argsort()

    @cached_property
    def _here(self) -> Place:
        communicator = self.setting.communicator
        return Place(communicator.place_in(ETP), communicator.place_in(EP))

    def _counts(self, own: torch.Tensor) -> torch.Tensor:
        """Return the rows by etp rank, ep rank and expert position on all ranks that share the experts, on the host."""
        shape = self.setting.shape
        table = own.new_zeros((int(shape.etp), int(shape.ep), self.op.experts))
        table[self._here] = own
        return sum_router_counts(self.setting.communicator, table, EXPERT_RANKS).cpu()


def _dispatch_of(routes: TokenPermutation, setting: Setting) -> TokenDispatch:
    """Return a dispatch in the form of the plan."""
    form = exchange_form(setting.shape, setting.communicator.program.stack)
    return FORMS[form](routes, setting.communicator, setting.precision.statistic)


def _count(kernel: DispatchKernel, routes: TokenPermutation, batch: int) -> None:
    """Count a layer's choices and its balancing loss in its forward pass, if no backward pass follows."""
    if kernel.balance is not None:
        loss = kernel.balance.loss(routes, routes.logits, batch)
        kernel.setting.tally.loss = kernel.setting.tally.loss + loss
    kernel.setting.tally.count(kernel.correction, routes.experts, kernel.op.experts, routes.dropped)


@dataclass(frozen=True)
class CombineKernel:
    """Combine: Σ weight · result by token, plus shared experts."""

    op: Combine
    setting: Setting

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Return the combined tokens, (sequence, batch, width).

        ``x`` may include the results of shared experts and their gate's logits.
        """
        rows, *shared_parts = x if isinstance(x, tuple) else (x,)
        y = token_dispatch_of(visit).weighed(rows, visit)
        y = y.unflatten(0, (-1, visit.batch.tokens.shape[1]))
        if not shared_parts or shared_parts[0] is None:
            return y
        if len(shared_parts) == 1:
            return y + shared_parts[0]
        shared, gate = shared_parts
        visit.kept |= {"shared": shared, "gate": gate}
        return y + shared * gate.sigmoid()

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Raise AssertionError: no recomputed segment begins here."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Raise AssertionError: recomputation, with its exchanges, saves the tensors again itself."""
        raise AssertionError(self.op.name)

    def input_gradient(self, g: torch.Tensor, visit: OperatorCall) -> Value:
        """Return the gradients of rows, shared experts and gate; the weights' gradient goes to the router."""
        of_rows = token_dispatch_of(visit).unweighed(g, visit)
        if len(self.op.reads) == 1:
            return of_rows
        if "gate" not in visit.kept:
            return of_rows, g
        shared, open_ = visit.kept.pop("shared"), visit.kept.pop("gate").sigmoid()
        of_gate = (g * shared).sum(-1, keepdim=True) * open_ * (1 - open_)
        return of_rows, g * open_, of_gate

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def exchange(self, item: Collective, x: Value, visit: OperatorCall) -> Exchange:
        """Return rows from the experts, or send gradients to them. Results of shared experts stay local."""
        way, communicator, routes = token_dispatch_of(visit), self.setting.communicator, routes_of(visit)
        rows, *shared_parts = x if isinstance(x, tuple) else (x,)
        if item.phase == "I":
            rows = yield from to_experts(
                routes, communicator, item, rows, partial(way.gradients, visit=visit)
            )
        else:
            rows = yield from from_experts(
                routes, communicator, item, rows, partial(way.results, visit=visit)
            )
        return (rows, *shared_parts) if shared_parts else rows
