"""Faults of optimizer steps that are validated after they are taken."""

from covering_plans import AFTERWARDS
from injected_fault import Fault

from meshwright.runtime.state.optimizer import Optimizer
from meshwright.runtime.state.parameter_lifecycle import StepStates
from meshwright.runtime.state.post_validation import PostValidation, StepResult
from meshwright.runtime.state.post_validation_sums import ValidationSums


def never_validated():
    def validate(self, known):
        pending, self.pending = self.pending, None
        if pending is not None:
            known(StepResult.of(self.total))
        return False

    PostValidation.validate = validate


def not_undone():
    Optimizer.restore = lambda self, copies: None


def moments_not_undone():
    original = Optimizer.restore

    def restore(self, copies):
        states = [s for parts in self.parts.values() for part in parts for s in part.states.values()]
        kept = [state.values.clone() for state in states]
        original(self, copies)
        for state, values in zip(states, kept, strict=True):
            state.values.copy_(values)

    Optimizer.restore = restore


def undone_and_not_taken_again():
    original = PostValidation.validate

    def validate(self, known):
        if (
            self.pending is not None
            and self.pending.copies is not None
            and StepResult.of(self.total).norm > AFTERWARDS.clip
        ):
            self.optimizer.restore(self.pending.copies)
            self.pending.copies = None
        return original(self, known)

    PostValidation.validate = validate


def passes_not_repeated():
    original = StepStates.validate

    def validate(self, action):
        original(self, action)
        return False

    StepStates.validate = validate


def sums_of_ranks_before_forgotten():
    original = ValidationSums.receive

    def receive(self, action):
        own = self.states.sums
        original(self, action)
        if action.kind == "RECV_NORM":
            self.states.sums = own

    ValidationSums.receive = receive


LATE_FAULTS = (
    Fault("steps are never validated", AFTERWARDS, never_validated, "parameters"),
    Fault("a wrong step is not undone before it is taken again", AFTERWARDS, not_undone, "parameters"),
    Fault("the moments of a wrong step stay", AFTERWARDS, moments_not_undone, "parameters"),
    Fault("a wrong step is undone and not taken again", AFTERWARDS, undone_and_not_taken_again, "parameters"),
    Fault("passes with wrong parameters are not repeated", AFTERWARDS, passes_not_repeated),
    Fault(
        "the sums of the ranks before are forgotten",
        AFTERWARDS,
        sums_of_ranks_before_forgotten,
        "gradient norm",
    ),
)
