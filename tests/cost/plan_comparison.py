"""Plans of a family as closed forms price them, against their simulated Programs."""

from dataclasses import replace

import numpy as np
import pytest
from step_traffic import array_traffic, program_traffic

from meshwright.cost.closed_form.evaluate_plans import evaluate, pipeline_groups, seconds_by_part
from meshwright.cost.memory.rank_ledgers import host_bytes
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.simulate.memory_ledger import peak_host_bytes, rank_ledger
from meshwright.simulate.plan_estimate import lower_and_simulate

TIME_BOUND = 0.03


def hold_together(chosen):
    """Bytes equal, times within the bound."""
    setting = chosen.setting
    plans = replace(from_shorts(list(chosen.plans)), layer_recomputes=chosen.of_layers)
    estimates, traffic = evaluate(plans, setting), array_traffic(plans, setting)
    of_parts = sum(seconds_by_part(plans, setting).values())
    assert of_parts == pytest.approx(estimates.step_s, rel=1e-12)
    estimated_on_hosts = host_peaks(plans, setting)
    errors = []
    for row, plan in enumerate(chosen.plans):
        program, simulated = lower_and_simulate(chosen.long(plan), setting)
        ledgers = [rank_ledger(program, rank, setting.cluster) for rank in range(program.pipeline_ranks)]
        worst = max(ledgers, key=lambda ledger: sum(ledger.values()))
        assert {kind: estimates.memory[kind][row] for kind in worst} == worst, plan
        assert {name: int(traffic[name][row]) for name in traffic} == program_traffic(program), plan
        on_hosts = [peak_host_bytes(program, rank) for rank in range(program.pipeline_ranks)]
        assert estimated_on_hosts[row] == max(on_hosts), plan
        errors.append(float(estimates.step_s[row]) / simulated.step_s - 1)
    largest = int(np.argmax(np.abs(errors)))
    print(f"largest error of a step time {errors[largest]:+.2%}")
    assert abs(errors[largest]) < TIME_BOUND, chosen.plans[largest]


def host_peaks(plans, setting):
    """The most that a device of each plan has on its host."""
    peaks = np.zeros(len(plans))
    for rows, group in pipeline_groups(plans, setting):
        peaks[rows] = host_bytes(group).max(1)
    return peaks
