"""Rules on one entry of ``synchronise`` by itself: keys that belong together, exclude each other, or say nothing."""

from collections.abc import Callable, Iterator

from meshwright.errors import Problem, written
from meshwright.plans.files.strict_types import Strict
from meshwright.plans.rules.synchronisation.numbers_and_names import legal_number, number_and_name_problems
from meshwright.plans.synchronisation.compression import CODECS, Compression
from meshwright.plans.synchronisation.exchange_text import file_data
from meshwright.plans.synchronisation.outer_optimizer import OUTERS, Outer
from meshwright.plans.synchronisation.synchronisation import AXES, PeriodRule, Synchronisation

FEEDS_BACK = ("quantise", "ternary", "low_rank", "top_k", "random_k", "sketch")
"""Codecs with error feedback; dct and select keep what they leave out in a momentum."""
KEEPS_VALUES = ("dct", "select", "top_k", "random_k")
"""Codecs whose messages have values of a type that ``cast`` may say."""
EVERY_STEP = {
    "gradient": "gradients are exchanged in every step",
    "expert_token": "tokens travel in every pass",
}
"""States that are exchanged inside a step."""
SPOKEN = {"gradient": "compress, combine and with", "expert_token": "compress"}
"""The keys that apply to them."""


def entry_problems(field: str, entry: Synchronisation) -> Iterator[Problem]:
    """Yield the problems of the entry at ``field`` that follow from the entry alone."""
    yield from number_and_name_problems(field, entry)
    for rule in ENTRY_RULES:
        yield from rule(field, entry)


def only_codec(
    field: str, entry: Synchronisation, because: str, spoken: str = "compress"
) -> Iterator[Problem]:
    """Yield the keys of an entry besides the ``spoken`` ones that differ from their defaults."""
    for key in ("every", "fragments", "delay", "own", "merge", "weigh", "outer", "keep"):
        value, default = getattr(entry, key), Synchronisation.model_fields[key].default
        if value != default and not (key == "outer" and entry.outer_in_full is None):
            rule = f"{because}: only {spoken} may be said"
            yield Problem(f"{field}.{key}", _shown(value), rule, f"take {key} out")


def _every_step(field: str, entry: Synchronisation) -> Iterator[Problem]:
    if entry.state in EVERY_STEP:
        yield from only_codec(field, entry, EVERY_STEP[entry.state], SPOKEN[entry.state])


def _moments(field: str, entry: Synchronisation) -> Iterator[Problem]:
    if entry.state in ("first_moment", "second_moment", "optimizer"):
        if entry.outer_in_full is not None:
            rule = "an outer optimizer moves parameters only"
            yield Problem(f"{field}.outer", _shown(entry.outer), rule, "take outer out")
        if entry.own == "fresh":
            rule = "the fresh local part is of changes, and of moments the values are averaged"
            yield Problem(f"{field}.own", entry.own, rule, "own: stale")


def _delay(field: str, entry: Synchronisation) -> Iterator[Problem]:
    every, delay = entry.every, entry.delay
    ruled = isinstance(every, PeriodRule) and every.qsr is not None
    period = every.qsr.base if isinstance(every, PeriodRule) and every.qsr is not None else every
    if not isinstance(period, int | float) or not (
        legal_number("every", period) and legal_number("delay", delay)
    ):
        return
    if ruled and delay and delay >= period:
        rule = f"with a rule delay stays below its base: {delay} ≥ {period}"
        yield Problem(f"{field}.delay", delay, rule, f"delay: {int(period) - 1}")
    elif delay > period:
        rule = f"delay ≤ every: {delay} > {period}"
        yield Problem(f"{field}.delay", delay, rule, f"delay: {int(period)}")
    if entry.own == "fresh" and (ruled or delay != period):
        rule = f"fresh needs delay = every: {delay} ≠ {written(_shown(every))}"
        hint = "own: stale" if ruled else f"delay: {period}, or own: stale"
        yield Problem(f"{field}.own", entry.own, rule, hint)


def _period(field: str, entry: Synchronisation) -> Iterator[Problem]:
    every = entry.every
    if isinstance(every, PeriodRule) and (every.qsr is None) == (every.probability is None):
        rule = "must have one rule" if every.qsr is None else "has two rules"
        yield Problem(f"{field}.every", _shown(every), rule, "every: {qsr: {base: 4, alpha: 0.0175}}")


def _one_outer(field: str, entry: Synchronisation) -> Iterator[Problem]:
    if isinstance(entry.outer, Outer) and len(entry.outer.written) != 1:
        rule = f"must be one of {', '.join(OUTERS)}; there are {len(entry.outer.written)}"
        yield Problem(f"{field}.outer", _shown(entry.outer), rule, "outer: {nesterov: {lr: 0.7}}")


def _one_codec(field: str, entry: Synchronisation) -> Iterator[Problem]:
    compress = entry.compress
    if compress is None:
        return
    codecs = compress.written
    if len(codecs) != 1:
        rule = f"must have one codec of {', '.join(CODECS)}; there are {len(codecs)}"
        value = file_data(compress)
        alone = {codecs[0]: value[codecs[0]]} if codecs else {"quantise": "int8"}
        yield Problem(f"{field}.compress", value, rule, f"compress: {written(alone)}")
    elif (entry.state == "expert_token") != (codecs[0] == "lsh"):
        rule = f"lsh is the codec of expert_token, and of it alone; state is {entry.state}"
        hint = "compress: {lsh: {}}" if entry.state == "expert_token" else "state: expert_token, over: ep"
        yield Problem(f"{field}.compress", codecs[0], rule, hint)


def _tokens(field: str, entry: Synchronisation) -> Iterator[Problem]:
    tokens = entry.state == "expert_token"
    if entry.over in AXES and tokens != (entry.over == "ep"):
        rule = "expert_token is what travels over ep, and nothing else does"
        yield Problem(f"{field}.over", entry.over, rule, "over: ep" if tokens else "over: dp_replicate")
    if tokens and entry.compress is None:
        yield Problem(f"{field}.compress", None, "expert_token needs a codec", "compress: {lsh: {}}")


def _codec_options(field: str, entry: Synchronisation) -> Iterator[Problem]:
    compress = entry.compress
    if compress is None or len(compress.written) != 1:
        return
    codec = compress.codec
    for key, having in (
        ("bucket", ("quantise",)),
        ("rounding", ("quantise",)),
        ("error_feedback", FEEDS_BACK),
        ("cast", KEEPS_VALUES),
    ):
        value = getattr(compress, key)
        if codec not in having and value != Compression.model_fields[key].default:
            rule = f"{codec} has no {key}; {', '.join(having)} {'has' if len(having) == 1 else 'have'}"
            yield Problem(f"{field}.compress.{key}", value, rule, f"take {key} out")
    dct = compress.dct
    if dct is not None and dct.keep > dct.chunk >= 1:
        rule = f"keep ≤ chunk: {dct.keep} > {dct.chunk}"
        yield Problem(f"{field}.compress.dct.keep", dct.keep, rule, f"keep: {dct.chunk}")


def _shown(value: object) -> object:
    return file_data(value) if isinstance(value, Strict) else value


ENTRY_RULES: tuple[Callable[[str, Synchronisation], Iterator[Problem]], ...] = (
    _every_step,
    _moments,
    _period,
    _delay,
    _one_outer,
    _one_codec,
    _tokens,
    _codec_options,
)
