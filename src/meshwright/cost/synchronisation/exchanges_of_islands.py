"""Price the exchanges of a Program's entries between islands, and the rows of a Report on them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from meshwright.cost.operators.pass_prices import Prices
from meshwright.cost.synchronisation.codec_times import exchange_codec_seconds, update_seconds
from meshwright.cost.synchronisation.exchange_rows import ExchangeRow, sent_bytes
from meshwright.cost.synchronisation.round_time import EntryTimes, RoundTime
from meshwright.plans.synchronisation.periods import LearningRates, Periods
from meshwright.plans.synchronisation.synchronisation import Synchronisation, exchanged_between_steps
from meshwright.program.program import Program
from meshwright.program.synchronisation.encoded_bytes import exchange_bytes
from meshwright.program.synchronisation.rank_exchanges import ExchangeMessage, RankExchanges


class FragmentTimes(NamedTuple):
    """Seconds of a fragment on a rank: its exchange, its codec, and the update that applies it."""

    exchange_s: float
    codec_s: float
    update_s: float


class ProgramExchanges:
    """The messages of every entry between islands, of the first rank of each pipeline rank."""

    def __init__(self, program: Program, prices: Prices) -> None:
        self.program, self.prices = program, prices
        self.entries = exchanged_between_steps(program.synchronise, program.loose)
        ranks = [program.parts.members(rank)[0] for rank in range(program.pipeline_ranks)]
        self.of_ranks = [RankExchanges(program, rank) for rank in ranks]
        self.messages: dict[tuple[int, int], list[tuple[ExchangeMessage, ...]]] = {}
        for entry in self.entries:
            for fragment in range(int(program.synchronise[entry].fragment_rule.count)):
                found = [of.messages(entry, fragment) for of in self.of_ranks]
                self.messages[entry, fragment] = found

    def times(self, rates: LearningRates | None) -> list[EntryTimes]:
        """Return the times of each entry; an exchange takes as long as on the slowest pipeline rank."""
        found = []
        for entry in self.entries:
            periods = Periods(self.program.synchronise[entry], rates)
            of_ranks = [self.rank_times(entry, fragment) for fragment in range(periods.count)]
            exchange_s, codec_s, update_s = (
                tuple(max(times[which] for times in of) for of in of_ranks) for which in range(3)
            )
            found.append(EntryTimes(entry, periods, exchange_s, codec_s, update_s))
        return found

    def rank_times(self, entry: int, fragment: int) -> list[FragmentTimes]:
        """Return the times of an exchange of a fragment on each pipeline rank."""
        return [
            FragmentTimes(
                self._seconds(messages),
                self._codec_seconds(entry, messages),
                self._update_seconds(entry, messages),
            )
            for messages in self.messages[entry, fragment]
        ]

    def _seconds(self, messages: Sequence[ExchangeMessage]) -> float:
        return sum(float(self.prices.collectives(message.collectives)) for message in messages)

    def _codec_seconds(self, entry: int, messages: Sequence[ExchangeMessage]) -> float:
        said, forms, total = self.program.synchronise[entry], self.prices.local.forms, 0.0
        for one in messages:
            ranks = self.program.group_size(one.axes, one.part)
            total += exchange_codec_seconds(said.compress, one.stretches, ranks, forms)
        return total

    def _update_seconds(self, entry: int, messages: Sequence[ExchangeMessage]) -> float:
        said, forms = self.program.synchronise[entry], self.prices.local.forms
        return sum(update_seconds(said, one.state, one.elements, forms) for one in messages)

    def rows(self, times: Sequence[EntryTimes], step_s: float, found: RoundTime) -> Iterator[ExchangeRow]:
        """Yield the rows of all entries as they are written; ``step_s`` is a step without their exchanges."""
        for of in sorted(times, key=lambda one: one.number):
            said = self.program.synchronise[of.number]
            for state in said.states:
                yield self._row(of, state, step_s, found)

    def _row(self, of: EntryTimes, state: str, step_s: float, found: RoundTime) -> ExchangeRow:
        said, share = self.program.synchronise[of.number], len(self.program.synchronise[of.number].states)
        sizes, sent = [], 0.0
        for fragment in range(of.periods.count):
            every = self.messages[of.number, fragment]
            messages = max(every, key=lambda one: _bytes(said, one, state))
            sizes.append(_bytes(said, messages, state))
            for message in (one for one in messages if one.state == state):
                ranks = self.program.group_size(message.axes, message.part)
                sent += sum(
                    sent_bytes(leg.kind, float(leg.logical_bytes), ranks) for leg in message.collectives
                )
        each = found.per_step(found.begun, of.number) / of.periods.count
        return ExchangeRow(
            state=state,
            over=said.axis,
            every=None if said.has_rule else said.period,
            exchanges_per_step=each,
            encoded_bytes=sum(sizes),
            sent_bytes_per_step=sent * each,
            largest_exchange_bytes=max(sizes),
            exchange_s=sum(of.exchange_s) / share,
            window_s=int(said.delay) * step_s,
            exposed_s_per_step=found.per_step(found.exposed_s, of.number) / share,
        )


def _bytes(said: Synchronisation, messages: Sequence[ExchangeMessage], state: str) -> int:
    """Return one rank's encoded bytes of a state."""
    return sum(exchange_bytes(said.compress, one.stretches) for one in messages if one.state == state)
