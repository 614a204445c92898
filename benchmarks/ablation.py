"""Leave one effect out of the cost model at a time, and see what it does to the errors on published runs.

    python benchmarks/ablation.py RUNS.csv            prints the page
    python benchmarks/ablation.py RUNS.csv --write    also writes benchmarks/ablation.md

Nothing is fitted again. A refit would hide a part of each effect in other constants; how much a single scale hides is
in the second table, where every source's errors are divided by their geometric mean.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from accuracy import table
from numpy.typing import NDArray

from meshwright import __version__
from meshwright.calibration.observations import Observation
from meshwright.calibration.usable_runs import usable_runs
from meshwright.cost.closed_form.evaluate_plans import seconds_by_part
from meshwright.cost.operators import operator_times
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes
from meshwright.cost.operators.pass_prices import Prices
from meshwright.model.operators.operator_types import Attention, Dispatch, Embedding, Linear, Loss
from meshwright.plans.setting import Setting
from meshwright.present.console import percent
from meshwright.validation.read_run_table import Run, read_runs

Floats = NDArray[np.float64]
SHORT = {
    "Megatron-LM SC21": "SC21",
    "Korthikanti": "Korthikanti",
    "Zero Bubble": "Zero Bubble",
    "Vocabulary": "Vocabulary",
    "MosaicML": "llm-foundry",
    "SimuMax": "SimuMax",
    "InternEvo": "InternEvo",
    "vTrain": "vTrain",
    "Megatron-Bridge": "Bridge",
}


@dataclass(frozen=True)
class Effect:
    """What is left out: constants and facts changed, functions replaced, or parts of the breakdown taken away."""

    name: str
    constants: tuple[tuple[str, float], ...] = ()
    stack: tuple[tuple[str, Any], ...] = ()
    replaced: tuple[tuple[Any, str, Any], ...] = ()
    rules: tuple[type, ...] = ()
    parts: tuple[str, ...] = ()

    def seconds(self, observation: Observation) -> Floats:
        """Step times of an observation without the effect."""
        with self._applied():
            found = seconds_by_part(observation.plans, self._setting(observation.setting))
        return np.asarray(sum(seconds for name, seconds in found.items() if name not in self.parts))

    def _setting(self, setting: Setting) -> Setting:
        cluster = replace(setting.cluster, calibration=setting.cluster.calibration + self.constants)
        return replace(setting, cluster=cluster, stack=replace(setting.stack, **dict(self.stack)))

    @contextmanager
    def _applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, function in self.replaced:
                stack.enter_context(patch.object(owner, name, function))
            if self.rules:
                stack.enter_context(patch.dict(operator_times.RULES, dict.fromkeys(self.rules, _no_time)))
            yield


def _no_time(*arguments: object) -> float:
    return 0.0


def _no_collective(
    times: HardwareTimes,
    kind: str,
    logical_bytes: Any,
    ranks: Any,
    local: Any,
    *further: object,
    **named: object,
) -> Floats:
    return np.zeros(np.broadcast(logical_bytes, ranks, local).shape)


def _not_again(method: Callable[..., Any]) -> Callable[..., Any]:
    """Collectives of a recomputed forward pass take no time."""
    return lambda prices, collective: 0.0 if collective.phase == "R" else method(prices, collective)


def _plain_vocabulary(method: Callable[..., Any]) -> Callable[..., Any]:
    """The head's product takes no time."""

    def rule(op: Any, phase: str, local: Any) -> Any:
        head = op.parameters and op.parameters[0].vocab_dim is not None
        return 0.0 if head else method(op, phase, local)

    return rule


HEAD = "embedding, head and loss"
EFFECTS = (
    Effect("nothing"),
    Effect("shape of matrix products", (("gemm_launch_s", 0.0), ("gemm_memory_efficiency", 1e9))),
    Effect("memory-bound passes", stack=(("elementwise_factor", 1e-9),)),
    Effect("host time", stack=(("host_s_per_layer", 0.0),)),
    Effect("all collectives", replaced=((HardwareTimes, "collective", _no_collective),)),
    Effect("saturation of the network with size", (("nic_saturation_bytes", 1e-9),)),
    Effect(
        "latency of collectives",
        (
            ("multi_process_latency_s", 0.0),
            ("nic_latency_s", 0.0),
            ("nic_ring_hop_s", 0.0),
            ("nic_tree_hop_s", 0.0),
        ),
    ),
    Effect(
        "overlap of data parallelism",
        stack=(("overlap_gradient_reduction", False), ("overlap_parameter_gather", False)),
    ),
    Effect("slow-down under overlap", (("overlap_slowdown", 0.0),)),
    Effect("pipeline bubble", parts=("bubble",)),
    Effect(
        "pipeline messages",
        (("p2p_latency_s", 0.0), ("p2p_nic_efficiency", 1e9), ("p2p_scaleup_efficiency", 1e9)),
    ),
    Effect("messages cut over tp", stack=(("partitioned_p2p", False),)),
    Effect("optimizer and gradient norm", parts=("optimizer",)),
    Effect("attention core", rules=(Attention,)),
    Effect("classes of attention kernels (all priced as flash)", stack=(("attention", "flash"),)),
    Effect(HEAD, rules=(Embedding, Loss)),
    Effect(
        "collectives of recomputation",
        replaced=((Prices, "collective", _not_again(Prices.collective)),),
    ),
    Effect("gradient accumulation", (("gradient_accumulation", 0.0),)),
    Effect("permutation of tokens", rules=(Dispatch,)),
    Effect("imbalance of experts", (("expert_imbalance", 1.0),)),
    Effect("deduplicated exchange of tokens", stack=(("deduplicates_exchange", False),)),
    Effect("steps that overlap", stack=(("validates_step_afterwards", False),)),
)


def errors(effect: Effect, observations: Sequence[Observation]) -> dict[str, Floats]:
    """predicted/measured of every source."""
    found: dict[str, list[Floats]] = {}
    for observation in observations:
        source = next(short for begin, short in SHORT.items() if observation.sources[0].startswith(begin))
        found.setdefault(source, []).append(effect.seconds(observation) / observation.measured_s)
    return {source: np.concatenate(found[source]) for source in SHORT.values() if source in found}


def all_errors(observations: Sequence[Observation]) -> dict[str, dict[str, Floats]]:
    """predicted/measured of every effect and source."""
    found = {}
    for effect in EFFECTS:
        with _without_head(effect.name == HEAD):
            found[effect.name] = errors(effect, observations)
    return found


def rows(found: Mapping[str, Mapping[str, Floats]], rescaled: bool) -> Iterator[list[str]]:
    """One line per effect."""
    for name, of_sources in found.items():
        scales = [np.exp(np.log(ratio).mean()) if rescaled else 1.0 for ratio in of_sources.values()]
        mapes = [np.abs(r / scale - 1).mean() for r, scale in zip(of_sources.values(), scales, strict=True)]
        yield [name, *(percent(float(mape)) for mape in mapes)]


@contextmanager
def _without_head(out: bool) -> Iterator[None]:
    rule = operator_times.RULES[Linear]
    with patch.dict(operator_times.RULES, {Linear: _plain_vocabulary(rule) if out else rule}):
        yield


def page(path: str) -> str:
    """Both tables."""
    observations = usable_runs([run for run in read_runs(path) if isinstance(run, Run)]).observations
    found = all_errors(observations)
    header = ["left out", *found[EFFECTS[0].name]]
    return f"""# Ablation: prediction errors without each effect

MAPE of step times of published runs when one effect is left out of the cost model, by version {__version__} on
{date.today().isoformat()}. Made by `python benchmarks/ablation.py RUNS.csv --write`; the runs are those of
[accuracy](accuracy.md). Nothing is fitted again.

{table(header, rows(found, rescaled=False))}
The same when every source's predictions are divided by their geometric mean error, which one more constant per source
would do: what is left is what the effect says about the differences between a source's runs.

{table(header, rows(found, rescaled=True))}"""


def main(path: str, options: list[str]) -> None:
    """Print the page, and write it where asked."""
    text = page(path)
    print(text)
    if "--write" in options:
        Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
