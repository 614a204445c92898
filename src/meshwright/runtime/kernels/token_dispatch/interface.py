"""Interface of a form of token dispatch: one method for each Program item of dispatch and combine.

============  =========================================  =========================================
item          dispatch                                   combine
============  =========================================  =========================================
Compute F     ``leave``: tokens → rows to send           ``weighed``: returned rows → tokens
all-to-all F  ``out``: → rows at their experts           ``results``: rows → returned rows
Compute I     ``arrive``: → gradients of tokens          ``unweighed``: gradients → rows to send
all-to-all I  ``back``: gradients → returned rows        ``gradients``: → rows at their experts
============  =========================================  =========================================

Rows at their experts are sorted by source rank, expert, token in every form. ``arrive`` comes last and stores the
gradients of the weights in the routes. If an etp group exchanges rows too, it does so between these rows and the
experts.
"""

from collections.abc import Callable
from typing import Protocol

import torch

from meshwright.program.pass_items import Collective
from meshwright.runtime.comm.communicator import Communicator
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.kernel import Exchange
from meshwright.runtime.kernels.moe.token_permutation import TokenPermutation


class TokenDispatch(Protocol):
    """The dispatch of a micro-batch's tokens to the experts of one layer and back."""

    def leave(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the rows to send, from (sequence, batch, width)."""

    def out(self, item: Collective, sent: torch.Tensor) -> Exchange:
        """Send rows to their experts."""

    def results(self, item: Collective, rows: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Send rows back from their experts; ``visit`` is the combine's call, which may save them."""

    def weighed(self, come: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return (tokens, width), each the weighted sum of its results."""

    def unweighed(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        """Return the gradient rows to send, from the gradient of the tokens, (sequence, batch, width)."""

    def gradients(self, item: Collective, sent: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Send gradients of results to their experts."""

    def back(self, item: Collective, rows: torch.Tensor) -> Exchange:
        """Send gradients of rows back from their experts."""

    def arrive(self, come: torch.Tensor) -> torch.Tensor:
        """Return (tokens, width), each the sum of its rows."""


DispatchFactory = Callable[[TokenPermutation, Communicator, torch.dtype], TokenDispatch]
"""Factory of a dispatch, from routes and the dtype of sums; all ranks of an ep group call it together."""
