"""Timelines the plain way: sweep over the ranks as long as one of them can go on. A reference for the quick one."""

from meshwright.play.execution_order import DeadlockError
from meshwright.schedules.dependencies import StageChains, dependency_key, sources
from meshwright.schedules.timeline import Timeline


def plain_run(lists, duration, comm=0, ways=None):
    ways = ways or StageChains(1 + max(action.stage for actions in lists for action in actions))
    done = {}
    starts, ends = [[] for _ in lists], [[] for _ in lists]
    progress = True
    while progress:
        progress = False
        for rank, actions in enumerate(lists):
            while len(ends[rank]) < len(actions):
                action = actions[len(ends[rank])]
                needed = sources(action, ways)
                if any(key not in done for key in needed):
                    break
                arrived = [done[key][0] + (comm if done[key][1] != rank else 0) for key in needed]
                start = max([0, *arrived, *ends[rank][-1:]])
                starts[rank].append(start)
                ends[rank].append(start + duration(action))
                done[dependency_key(action)] = (ends[rank][-1], rank)
                progress = True
    waiting = [actions[len(e)] for actions, e in zip(lists, ends, strict=True) if len(e) < len(actions)]
    if waiting:
        raise DeadlockError(waiting)
    return Timeline(tuple(map(tuple, starts)), tuple(map(tuple, ends)))
