"""One rank of a run: its connection to the others, its part of the plan, its parameters and its optimizer.

Everything that executes a Program (training, proofs, emulation) begins here.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist

from meshwright.errors import RunError
from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import runnable_numerics
from meshwright.plans.synchronisation.periods import LearningRates
from meshwright.program.program import Program
from meshwright.program.synchronisation.replica_arrivals import late_replicas
from meshwright.runtime.comm.communicator import Communicator, connected
from meshwright.runtime.executor.interpreter import Interpreter
from meshwright.runtime.executor.rank_plan import RankPlan, rank_plan
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.precision import precision_of
from meshwright.runtime.state.forward_only_states import ForwardOnlyStates
from meshwright.runtime.state.frozen_unit import FrozenUnit
from meshwright.runtime.state.optimizer import Optimizer
from meshwright.runtime.state.parameter_lifecycle import StepStates
from meshwright.runtime.state.shard_pieces import local_part
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.synchronisation.arrival_agreement import agreed_arrivals

CPU_THREADS = 1
"""Threads of a rank on a CPU; ranks are added instead."""


@dataclass(frozen=True)
class Job:
    """Inputs of every rank of a run.

    ``timeout_s`` is how long an operation may wait for its partners. Without ``accelerated``, ranks compute on the CPU.
    ``seed`` is that of the noise of parameters and of random choices of codecs. ``rates`` are the learning rates of the
    run, which rules of ``synchronise`` need. ``measures_arrivals``: replicas are late if they are late on real
    processes; else it follows from a seed.
    """

    program: Program
    model: ModelGraph
    precision: str = "bf16"
    options: StepOptions = field(default_factory=StepOptions)
    timeout_s: float = 300.0
    accelerated: bool = True
    seed: int = 0
    rates: LearningRates | None = None
    measures_arrivals: bool = False


@dataclass(frozen=True)
class Rank:
    """A rank that is ready to run steps.

    ``before_write`` is called before it writes its file of a checkpoint, with the number of steps that the state is of.
    """

    place: Place
    job: Job
    plan: RankPlan
    interpreter: Interpreter
    before_write: Callable[[int], None] = lambda done: None

    @property
    def communicator(self) -> Communicator:
        """The rank's communicator."""
        return self.plan.communicator


@contextmanager
def rank_of(job: Job, place: Place, store: dist.Store, tensors: Mapping[str, torch.Tensor]) -> Iterator[Rank]:
    """Join a run as a rank that holds its part of ``tensors``, whole parameters; leave after all ranks are done.

    First compares the Program's signature: ranks that would execute different Programs raise RunError.
    """
    device = _device(place, job.accelerated)
    dist.init_process_group(
        backend="nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=place.rank,
        world_size=place.ranks,
        timeout=timedelta(seconds=job.timeout_s),
    )
    _agree(job.program, store, place)
    communicator = connected(place.rank, job.program, device, job.timeout_s)
    rank, late = loaded_rank(job, place, communicator, tensors), late_replicas(job.program)
    if job.measures_arrivals and late is not None:
        agreed = agreed_arrivals(store, job.program, late, place.rank)
        rank.interpreter.states.arrivals.arrivals = agreed
    yield rank
    dist.barrier()  # no rank may close a connection that another still uses
    dist.destroy_process_group()


def loaded_rank(
    job: Job, place: Place, communicator: Communicator, tensors: Mapping[str, torch.Tensor]
) -> Rank:
    """Return a rank that holds its part of ``tensors``, whole parameters."""
    numerics = runnable_numerics(job.model.architecture)
    precision = precision_of(job.precision, job.program.changed_types)
    plan = rank_plan(job.program, job.model, numerics, communicator, precision, job.seed)
    for unit in plan.all_units:
        unit.load(tensors if isinstance(unit, FrozenUnit) else local_part(tensors, unit))
    for name, buffer in plan.buffers.items():
        buffer.copy_(tensors[name])
    interpreter = Interpreter(plan, _states(plan, job))
    interpreter.states.synchroniser.prepare(job.seed, job.rates)
    return Rank(place, job, plan, interpreter)


def _states(plan: RankPlan, job: Job) -> StepStates:
    optimizer = Optimizer(plan, job.options)
    if job.program.stack.optimizer.forward_only:
        return ForwardOnlyStates(plan, optimizer, seed=job.seed)
    return StepStates(plan, optimizer)


def _agree(program: Program, store: dist.Store, place: Place) -> None:
    """Compare this rank's Program with rank 0's. Raises RunError if they differ."""
    own = program.signature()
    if place.rank == 0:
        store.set("program", own)
    theirs = store.get("program").decode()
    if theirs != own:
        raise RunError(f"rank {place.rank} lowered another Program ({own}) than rank 0 ({theirs})")


def _device(place: Place, accelerated: bool) -> torch.device:
    """Return the accelerator of this local rank, or the CPU if there is none."""
    if accelerated and torch.cuda.device_count() > place.local_rank:
        torch.cuda.set_device(place.local_rank)
        return torch.device("cuda", place.local_rank)
    torch.set_num_threads(CPU_THREADS)
    return torch.device("cpu")
