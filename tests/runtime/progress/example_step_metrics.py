"""A step as it is measured, for tests to change."""

from meshwright.runtime.progress.step_metrics import StepMetrics

METRICS = StepMetrics(
    step=0,
    loss=2.51239,
    grad_norm=0.71,
    lr=3e-4,
    tokens=512,
    tokens_per_s=53_498.8,
    mfu=0.412,
    step_time_s=2.0,
    memory_bytes=3 * 2**30,
    time_s=1.7e9,
)
