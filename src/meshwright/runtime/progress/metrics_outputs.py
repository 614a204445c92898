"""The outputs of a run's metrics: the log of every run, TensorBoard and Prometheus."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from meshwright.errors import Problem
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.launch.network_address import Address
from meshwright.runtime.progress.metrics_log import open_log
from meshwright.runtime.progress.step_metrics import StepMetrics

PACKAGES: Mapping[str, str] = {"tensorboard": "tensorboard", "prometheus": "prometheus_client"}
"""The package that each output needs; the extra of Meshwright has the name of the output."""


class MetricsOutput(Protocol):
    """An output of metrics."""

    def step(self, metrics: StepMetrics) -> None:
        """Take a step."""

    def evaluation(self, step: int, held_out_loss: float, held_out_tokens: int) -> None:
        """Take the loss on held-out tokens after a step."""

    def fault(self, fault: Fault) -> None:
        """Take a fault that was only reported."""


@dataclass(frozen=True)
class MetricsOutputs:
    """Several outputs as one."""

    every: Sequence[MetricsOutput]

    def step(self, metrics: StepMetrics) -> None:
        """Give a step to all outputs."""
        for output in self.every:
            output.step(metrics)

    def evaluation(self, step: int, held_out_loss: float, held_out_tokens: int) -> None:
        """Give the loss on held-out tokens to all outputs."""
        for output in self.every:
            output.evaluation(step, held_out_loss, held_out_tokens)

    def fault(self, fault: Fault) -> None:
        """Give a fault to all outputs."""
        for output in self.every:
            output.fault(fault)


def missing_package(output: str) -> Problem | None:
    """Return the problem that the package of an output is not installed; None if it is."""
    if find_spec(PACKAGES[output]) is not None:
        return None
    rule = f"needs {PACKAGES[output]}, which is not installed"
    return Problem(output, PACKAGES[output], rule, f"pip install 'meshwright[{output}]'")


@contextmanager
def open_outputs(
    log: Path,
    version: str,
    facts: Mapping[str, object],
    next_step: int,
    tensorboard: Path | None = None,
    prometheus: Address | None = None,
) -> Iterator[MetricsOutput]:
    """Open the log at ``log``, and event files in the folder ``tensorboard`` and a server at ``prometheus`` if given.

    ``facts`` begin the log. Raises InputError if a file cannot be written or the address cannot be used.
    """
    with ExitStack() as stack:
        every: list[MetricsOutput] = [stack.enter_context(open_log(log, version, facts, next_step))]
        if tensorboard is not None:
            from meshwright.runtime.progress.tensorboard_events import tensorboard_events

            every.append(stack.enter_context(tensorboard_events(tensorboard, next_step)))
        if prometheus is not None:
            from meshwright.runtime.progress.prometheus_metrics import prometheus_metrics

            every.append(stack.enter_context(prometheus_metrics(prometheus)))
        yield MetricsOutputs(every)
