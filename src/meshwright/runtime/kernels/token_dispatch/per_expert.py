"""Send one copy of a token to each expert that it chose; results return one by one and are weighed at the token."""

from dataclasses import dataclass

import torch

from meshwright.program.local_shape import ACTIVATION_BYTES
from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange
from meshwright.runtime.kernels.moe.token_permutation import TokenPermutation


@dataclass
class PerExpertDispatch:
    """Dispatch in one uneven all-to-all: rows sorted by expert are sorted by rank too."""

    routes: TokenPermutation
    communicator: Communicator
    statistic: torch.dtype

    def leave(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return one row for each choice, in the order of experts."""
        return self.routes.of_tokens(tokens)

    def out(self, item: Collective, sent: torch.Tensor) -> Exchange:
        """Send rows to the ranks of their experts."""
        routes = self.routes
        return (yield from self._all_to_all(item, sent, routes.sent, routes.received, len(sent)))

    def results(self, item: Collective, rows: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Send results back."""
        return (yield from self.back(item, rows))

    def weighed(self, come: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return Σ weight · result, and save the results for the gradients of the weights."""
        if visit.keep.inputs:
            visit.kept["input"] = come
        return torch.einsum("tkh,tk->th", self.routes.by_token(come), self.routes.weights)

    def unweighed(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return weight · gradient, and store gradient · result as the weights' gradient."""
        routes, rows = self.routes, visit.kept.pop("input")
        of_rows = routes.of_tokens(g)
        found = (rows.to(self.statistic) * of_rows).sum(-1)
        routes.weights_gradient = routes.by_token(found)
        return of_rows * routes.of_choices(routes.weights)[:, None]

    def gradients(self, item: Collective, sent: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Send gradients to the ranks of their experts."""
        return (yield from self.out(item, sent))

    def back(self, item: Collective, rows: torch.Tensor) -> Exchange:
        """Send rows back to the ranks they came from."""
        routes = self.routes
        return (yield from self._all_to_all(item, rows, routes.received, routes.sent, sum(routes.sent)))

    def arrive(self, come: torch.Tensor) -> torch.Tensor:
        """Return the sums by token."""
        return self.routes.by_token(come).sum(1)

    def _all_to_all(
        self, item: Collective, rows: torch.Tensor, sent: list[int], received: list[int], counted: int
    ) -> Exchange:
        """Run the all-to-all, counting the rows on the tokens' side, which the router's choices do not change."""
        out, elements = rows.new_empty((sum(received), *rows.shape[1:])), counted * rows.shape[-1]
        splits = sent, received
        rows = rows.contiguous()
        yield self.communicator.start(item, rows, ACTIVATION_BYTES, out=out, elements=elements, splits=splits)
        return out
