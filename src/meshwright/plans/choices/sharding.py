"""The ZeRO level of parameters, gradients and optimizer states. Base plans enumerate it."""

from meshwright.plans.choices.plan_choice import Choice
from meshwright.plans.forms.short import ShardingName
from meshwright.plans.forms.spellings import SHARDINGS as SPELLINGS

SHARDINGS: tuple[ShardingName, ...] = ("none", "zero1", "zero2", "zero3")

sharding = Choice(path="sharding", known=SHARDINGS, spellings=SPELLINGS)
