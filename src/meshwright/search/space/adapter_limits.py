"""Cut plans from a space that their adapters do not run under (``plans/rules/adapters.py``)."""

from collections.abc import Callable, Mapping
from functools import partial
from math import gcd

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.distinct_rows import map_distinct_rows
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.rules.adapters import Cuts, cut_problems
from meshwright.plans.setting import Setting
from meshwright.schedules.choice import validates_afterwards
from meshwright.search.space.searched_schedules import SearchedSchedules
from meshwright.workload.adapter import HD_PISSA, Adapter

Ints = NDArray[np.int64]
Cut = Callable[[tuple[str, NDArray[np.bool_]]], None]
COLUMNS = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp", "sharding")
SPLIT = "adapters do not run under a cut: it splits a block of the base, or their states"
PASSES = f"{HD_PISSA} runs on one chain of stages, with steps that are final"


def cut_adapters(cut: Cut, table: Mapping[str, Ints], setting: Setting, schedules: SearchedSchedules) -> None:
    """Remove plans whose layouts and schedules adapters do not run under, by ``cut`` of a rule and its mask."""
    adapter = setting.workload.adapter
    if adapter is None:
        return
    if adapter.of_each_replica:
        schedule, pp = table["schedule"], table["pp"]
        one = np.array([choice.kind.chains == 1 for choice in schedules], dtype=np.bool_)[schedule]
        usually = setting.stack.validates_step_afterwards
        after = np.array([validates_afterwards(choice, usually, 2) for choice in schedules], dtype=np.bool_)
        cut((PASSES, one & ~(after[schedule] & (pp > 1))))
    legal = map_distinct_rows(partial(_is_legal, adapter, setting), [table[name] for name in COLUMNS])
    cut((SPLIT, np.asarray(legal, dtype=np.bool_).reshape(-1)))


def _is_legal(
    adapter: Adapter,
    setting: Setting,
    pp: int,
    tp: int,
    cp: int,
    dp_replicate: int,
    dp_shard: int,
    ep: int,
    etp: int,
    sharding: int,
) -> bool:
    name = SHARDINGS[sharding]
    copies = max(1, dp_replicate * dp_shard * cp * tp // (ep * etp))
    cuts = Cuts(
        tp=tp,
        etp=etp,
        shard=dp_shard * cp,
        expert_shard=copies // gcd(copies, dp_replicate),
        replicas=dp_replicate * dp_shard,
        sharding=name,
        gathered=setting.stack.cuts_parameters(name),
    )
    return not any(True for _ in cut_problems(adapter, setting.model, cuts))
