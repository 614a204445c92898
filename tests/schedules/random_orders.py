"""Lists in any order that can run: whatever is ready may come next on its rank."""

import random

from meshwright.schedules.action import Action
from meshwright.schedules.dependencies import StageChains, dependency_key, sources


def drawn_order(placement, micro_batches, split, seed):
    """Lists of passes, the next one drawn from all that are ready; backward passes whole, or split."""
    ways, draw = StageChains(len(placement)), random.Random(seed)
    kinds = ("F", "I", "W") if split else ("F", "B")
    todo = [Action(k, s, m) for k in kinds for s in range(len(placement)) for m in range(micro_batches)]
    lists, done = [[] for _ in range(max(placement) + 1)], set()
    while todo:
        ready = [i for i, action in enumerate(todo) if done.issuperset(sources(action, ways))]
        action = todo.pop(draw.choice(ready))
        lists[placement[action.stage]].append(action)
        done.add(dependency_key(action))
    return lists
