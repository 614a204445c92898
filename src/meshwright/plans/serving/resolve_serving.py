"""Resolve a serving plan: load the nouns it names, expand it, and return it or all problems at once."""

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.load import load_cluster
from meshwright.errors import PlanError, Problem, attempted
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_model
from meshwright.plans.serving.engine_names import engine_problems
from meshwright.plans.serving.expand_pools import expand_pools
from meshwright.plans.serving.rules.batch_limits import BATCHING_RULES
from meshwright.plans.serving.rules.edges_of_pools import HAND_OVER_RULES
from meshwright.plans.serving.rules.pools_on_cluster import DEVICE_RULES
from meshwright.plans.serving.rules.replica_degrees import REPLICA_RULES
from meshwright.plans.serving.rules.request_limits import REQUEST_RULES
from meshwright.plans.serving.rules.serving_rule_input import ServingRule, ServingRuleInput
from meshwright.plans.serving.serving_file import ServingFile
from meshwright.plans.serving.serving_plan import ServingPlan

SERVING_RULES: tuple[ServingRule, ...] = (
    *REPLICA_RULES,
    *DEVICE_RULES,
    *HAND_OVER_RULES,
    *BATCHING_RULES,
    *REQUEST_RULES,
)


@dataclass(frozen=True, slots=True)
class ResolvedServing:
    """A legal serving plan with its model and cluster."""

    plan: ServingPlan
    model: ModelGraph
    cluster: Cluster
    warnings: tuple[Problem, ...] = ()

    @property
    def idle_devices(self) -> int:
        """Devices of the cluster that no pool uses."""
        return self.cluster.devices - self.plan.devices


def resolve_serving(file: ServingFile) -> ResolvedServing:
    """Return the plan in full. Raises PlanError with all errors: of names, and of laws as far as names are known."""
    problems: list[Problem] = [*engine_problems(file.stack)]
    model = attempted(lambda: load_model(file.model), problems)
    cluster = attempted(lambda: load_cluster(file.cluster), problems)
    arch = None if model is None else model.architecture
    plan = expand_pools(file, experts=arch is not None and arch.moe is not None)
    problems += serving_problems(ServingRuleInput(plan, arch, None if cluster is None else cluster.devices))
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors or model is None or cluster is None:
        raise PlanError(errors)
    return ResolvedServing(plan, model, cluster, tuple(problems))


def serving_problems(case: ServingRuleInput) -> Iterator[Problem]:
    """Yield every law that a plan breaks, and doubts as warnings."""
    for rule in SERVING_RULES:
        yield from rule(case)
