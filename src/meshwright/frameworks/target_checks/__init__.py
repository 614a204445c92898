"""Does the target do what the Program says? One step of it on a process group that is none, held against the plan.

``dry_run.py`` has the target take the step in a Python that has it, one process for each class of equivalent ranks;
``planned_collectives.py`` reads the same step off the Program; ``step_comparison.py`` holds the two against each
other and names every disagreement with both figures; ``known_differences.py`` lists what a target does in its own
way, each with its reason.
"""
