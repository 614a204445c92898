"""Serve the metrics of a run to Prometheus, from a thread of rank 0."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from meshwright.errors import InputError, Problem
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.launch.network_address import Address
from meshwright.runtime.progress.step_metrics import StepMetrics

GAUGES = {
    "step": "Last step, counted from 0",
    "loss": "Loss of the last step in nats",
    "grad_norm": "Norm of gradients of the last step before clipping",
    "tokens_per_s": "Tokens per second of all devices in the last step",
    "step_time_s": "Seconds of the last step",
    "waited_s": "Seconds of the last step in which rank 0 waited for other ranks",
}
"""Numbers of a step by their names in ``StepMetrics``, which are also those of the metrics behind ``meshwright_``."""


class PrometheusMetrics:
    """Metrics of a run in a registry of their own. ``port`` is the one that they are served at."""

    port: int = 0

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(f"meshwright_{name}", text, registry=self.registry) for name, text in GAUGES.items()
        }
        self._held_out = Gauge("meshwright_held_out_loss", "Loss on held-out tokens", registry=self.registry)
        self._faults = Counter(
            "meshwright_faults", "Reported faults by kind", ["kind"], registry=self.registry
        )

    def step(self, metrics: StepMetrics) -> None:
        """Show the numbers of a step that are known."""
        for name, gauge in self._gauges.items():
            value = getattr(metrics, name)
            if value is not None:
                gauge.set(value)

    def evaluation(self, step: int, held_out_loss: float, held_out_tokens: int) -> None:
        """Show the loss on held-out tokens."""
        self._held_out.set(held_out_loss)

    def fault(self, fault: Fault) -> None:
        """Count a fault."""
        self._faults.labels(fault.kind).inc()


@contextmanager
def prometheus_metrics(address: Address) -> Iterator[PrometheusMetrics]:
    """Serve metrics at an address inside the block. Raises InputError if it cannot be used."""
    metrics = PrometheusMetrics()
    try:
        server, thread = start_http_server(address.port, addr=address.host, registry=metrics.registry)
    except OSError as error:
        rule = f"cannot be listened at: {error.strerror or error}"
        problem = Problem("prometheus", str(address), rule, "another port; 0 lets the system choose one")
        raise InputError(problem) from None
    metrics.port = server.server_port
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
