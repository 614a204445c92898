"""What every form of the experts' exchange offers to dispatch and combine: a method for each item of the Program.

============  =========================================  =========================================
item          dispatch                                   combine
============  =========================================  =========================================
Compute F     ``leave``: tokens → what is sent           ``weighed``: what has come back → tokens
all-to-all F  ``out``: → rows at their experts           ``results``: rows → what has come back
Compute I     ``arrive``: → gradients of tokens          ``unweighed``: gradients → what is sent
all-to-all I  ``back``: gradients → what has come back   ``gradients``: → rows at their experts
============  =========================================  =========================================

Rows at their experts lie in the order of the ranks that they are from, of experts, of tokens; the same in every form.
``arrive`` comes last and leaves the gradients of the routes' weights in them. Where an etp group exchanges rows, too,
it does so between these rows and the experts.
"""

from collections.abc import Callable
from typing import Protocol

import torch

from meshwright.program.items import Collective
from meshwright.runtime.communicator import Communicator
from meshwright.runtime.kernels.kernel import Exchange
from meshwright.runtime.kernels.routes import Routes
from meshwright.runtime.visit import Visit


class Way(Protocol):
    """The way of a micro-batch's tokens to the experts of one layer and back."""

    def leave(self, tokens: torch.Tensor) -> torch.Tensor:
        """(sequence, batch, width) → rows that are sent."""

    def out(self, item: Collective, sent: torch.Tensor) -> Exchange:
        """→ rows at their experts."""

    def results(self, item: Collective, rows: torch.Tensor, visit: Visit) -> Exchange:
        """Rows at their experts → rows that have come back; ``visit`` is that of the combine, which may keep them."""

    def weighed(self, come: torch.Tensor, visit: Visit) -> torch.Tensor:
        """→ (tokens, width), each the weighed sum of its results."""

    def unweighed(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        """The gradient of that, (sequence, batch, width) → rows that are sent."""

    def gradients(self, item: Collective, sent: torch.Tensor, visit: Visit) -> Exchange:
        """→ gradients of results at their experts."""

    def back(self, item: Collective, rows: torch.Tensor) -> Exchange:
        """Gradients of rows at their experts → rows that have come back."""

    def arrive(self, come: torch.Tensor) -> torch.Tensor:
        """→ (tokens, width), each the sum of its rows."""


Begin = Callable[[Routes, Communicator, torch.dtype], Way]
"""Routes, and the dtype of sums and statistics; all ranks of an ep group begin together."""
