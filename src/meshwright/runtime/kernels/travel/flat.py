"""A copy of a token for each expert that it chose; results come back one by one and are weighed where tokens are."""

from dataclasses import dataclass

import torch

from meshwright.program.items import Collective
from meshwright.program.shape import ACTIVATION_BYTES
from meshwright.runtime.communicator import Communicator
from meshwright.runtime.kernels.kernel import Exchange
from meshwright.runtime.kernels.routes import Routes
from meshwright.runtime.visit import Visit


@dataclass(frozen=True)
class Flat:
    """One uneven all-to-all: sorted by expert, rows are sorted by rank too."""

    routes: Routes
    communicator: Communicator
    statistic: torch.dtype

    def leave(self, tokens: torch.Tensor) -> torch.Tensor:
        """A row for each choice, in the order of experts."""
        return self.routes.of_tokens(tokens)

    def out(self, item: Collective, sent: torch.Tensor) -> Exchange:
        """As many as each rank's experts were chosen."""
        routes = self.routes
        return (yield from self._all_to_all(item, sent, routes.sent, routes.received, len(sent)))

    def results(self, item: Collective, rows: torch.Tensor, visit: Visit) -> Exchange:
        """The way back."""
        return (yield from self.back(item, rows))

    def weighed(self, come: torch.Tensor, visit: Visit) -> torch.Tensor:
        """Σ weight · result; the results are kept for the gradients of the weights."""
        if visit.keep.inputs:
            visit.kept["input"] = come
        return torch.einsum("tkh,tk->th", self.routes.by_token(come), self.routes.weights)

    def unweighed(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        """Weight · gradient; gradient · result is that of the weight."""
        routes, rows = self.routes, visit.kept.pop("input")
        of_rows = routes.of_tokens(g)
        found = (rows.to(self.statistic) * of_rows).sum(-1)
        routes.weights_gradient = routes.by_token(found)
        return of_rows * routes.of_choices(routes.weights)[:, None]

    def gradients(self, item: Collective, sent: torch.Tensor, visit: Visit) -> Exchange:
        """The way out."""
        return (yield from self.out(item, sent))

    def back(self, item: Collective, rows: torch.Tensor) -> Exchange:
        """As many as were sent."""
        routes = self.routes
        return (yield from self._all_to_all(item, rows, routes.received, routes.sent, sum(routes.sent)))

    def arrive(self, come: torch.Tensor) -> torch.Tensor:
        """The sum by token."""
        return self.routes.by_token(come).sum(1)

    def _all_to_all(
        self, item: Collective, rows: torch.Tensor, sent: list[int], received: list[int], counted: int
    ) -> Exchange:
        """The Program counts the tokens' side, which has the same rows whatever routers choose, if none is dropped."""
        out, elements = rows.new_empty((sum(received), *rows.shape[1:])), counted * rows.shape[-1]
        splits = sent, received
        rows = rows.contiguous()
        yield self.communicator.start(item, rows, ACTIVATION_BYTES, out=out, elements=elements, splits=splits)
        return out
