"""Programs that are nothing but a pipeline: passes of given lengths and messages of one length, nothing else."""

from dataclasses import dataclass, field, replace
from functools import cache
from types import SimpleNamespace

from meshwright.cluster.load import load_cluster
from meshwright.cost.constants import constants
from meshwright.cost.operators.pass_prices import Mesh
from meshwright.cost.operators.price_plans import program_prices
from meshwright.model.architecture import Architecture
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.program import Program, Stage
from meshwright.schedules.activation_offload import OffloadedStages, with_offloads
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.insert_messages import insert_messages
from meshwright.simulate.simulation_result import Simulation
from meshwright.simulate.simulator import simulate
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

ARCHITECTURE = Architecture(
    name="small",
    family="llama",
    source="a test",
    layers=8,
    hidden=256,
    vocab=4000,
    heads=8,
    kv_heads=8,
    head_dim=32,
    v_head_dim=32,
    intermediate=704,
    gated=True,
    activation="silu",
    max_positions=4096,
    tied_embeddings=True,
    windows=(None,) * 8,
)
STAGE_BYTES = 3


@dataclass(frozen=True)
class Lowered:
    """A plan and what became of it."""

    short: ShortPlan
    setting: Setting
    program: Program

    def simulated(self) -> Simulation:
        return simulate(self.program, program_prices(self.program, self.setting))


@cache
def lowered(
    pp: int = 2,
    tp: int = 1,
    dp_shard: int = 1,
    dp_replicate: int = 1,
    sharding: str = "none",
    schedule: str = "1f1b",
    virtual_stages: int = 1,
    global_batch: int = 16,
    stack: str = "megatron-core",
    gather: str | None = None,
    **facts: bool,
) -> Lowered:
    """A small plan on H100s, lowered; ``facts`` change the stack."""
    devices = pp * tp * dp_shard * dp_replicate
    short = ShortPlan.model_validate(
        {
            "plan": 1,
            "model": "small",
            "cluster": f"h100-sxm-80gb x {devices}",
            "stack": stack,
            "workload": {"seq_len": 1024, "global_batch": global_batch},
            "layout": {"pp": pp, "tp": tp, "dp_shard": dp_shard, "dp_replicate": dp_replicate},
            "sharding": sharding,
            "gather": gather,
            "pipeline": {"schedule": schedule, "virtual_stages": virtual_stages},
        }
    )
    model, cluster = build_graph(ARCHITECTURE), load_cluster(short.cluster)
    workload = Workload(seq_len=1024, global_batch=global_batch)
    setting = Setting(model, cluster, workload, replace(load_stack(stack), **facts))
    program = lower(expand(short, model.architecture), model, cluster, setting.workload, setting.stack)
    return Lowered(short, setting, program)


def plain_program(
    schedule: str, ranks: int, micro_batches: int, chunks: int = 1, copied_bytes: int = 0, ahead: int = 1
) -> Program:
    """The schedule's lists with messages, and no collective, norm or optimizer; so much of a pass goes to the host."""
    kind = SCHEDULES[schedule]
    placement, ways = kind.placement(ranks, chunks), kind.ways(ranks, chunks)
    out = OffloadedStages(frozenset(range(len(placement)) if copied_bytes else ()), ahead)
    lists = insert_messages(with_offloads(kind.lists(ranks, micro_batches, chunks), out), placement, ways)
    kinds = "FIW" if kind.split else "FB"
    program = lowered().program
    part = replace(program.parts.only, message_bytes=1)
    return replace(
        program,
        parts=replace(program.parts, every=(part,)),
        stages=tuple(Stage(index, rank, (0,), ()) for index, rank in enumerate(placement)),
        micro_batches=micro_batches,
        bodies={(stage, kind): (stage, kind) for stage in range(len(placement)) for kind in kinds},
        collectives={},
        activation_bytes=(STAGE_BYTES,) * len(placement),
        weight_gradient_bytes=(STAGE_BYTES - 1,) * len(placement),
        offloaded_bytes=(copied_bytes,) * len(placement),
        lists=tuple(tuple(actions) for actions in lists),
        chains=kind.chains,
    )


@dataclass
class GivenPrices:
    """Prices that are given: seconds by (stage, pass), and seconds of a message."""

    seconds: dict[tuple[int, str], float]
    message: float
    copy: float = 0.0
    mesh: Mesh = field(default_factory=lambda: Mesh({"pp": 1}, {"pp": 1}, 1))

    def of_part(self, part: int) -> tuple[SimpleNamespace, Mesh]:
        return self.local, self.mesh

    @property
    def local(self) -> SimpleNamespace:
        form = SimpleNamespace(
            p2p=lambda size, crosses, congestion: self.message,
            constants=constants() | {"host_link_efficiency": 1.0},
        )
        form.host_bytes_per_s = STAGE_BYTES / self.copy if self.copy else 0.0
        return SimpleNamespace(forms=form)

    def body(self, body: tuple[int, str]) -> dict[str, float]:
        return {"compute": self.seconds[body]}
