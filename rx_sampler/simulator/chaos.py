"""Faults by chance, the same in every run: each attempt of each request draws its own from seed, key and number."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Annotated, Final, TypeVar, get_args

from pydantic import Field, model_validator

from .faults import Fault, FaultKind
from .strict import FROM_LIST, StrictModel

__all__ = ["Chaos"]

_T = TypeVar("_T")
Rate = Annotated[float, Field(ge=0, le=1)]
Status = Annotated[int, Field(ge=400, le=599)]

_RATES: Final[dict[FaultKind, Rate]] = {
    "status": 0.12,
    "close": 0.04,
    "reset": 0.06,
    "cut": 0.06,
    "early_end": 0.02,
    "silent": 0.01,
    "stall": 0.02,
    "error": 0.04,
    "truncated_json": 0.03,
}

_ROUNDING: Final = 1e-9
"""Rates that are meant to add up to 1 may miss it by this much."""

_SHARE_OF_RESETS_BEFORE_HEADERS: Final = 0.2
_SHARE_OF_STATUSES_WITH_A_PAGE: Final = 0.25
_PAGE: Final = "<html><head><title>simulated failure</title></head><body>a proxy's page</body></html>"
_ERRORS: Final[tuple[dict[str, str], ...]] = (
    {},  # the provider's usual one: overloaded, or a server error
    {"type": "rate_limit_error", "code": "rate_limit_exceeded"},
    {"type": "invalid_request_error"},
)
_MOST_KEEPALIVES: Final = 3
_MOST_DELTAS_BEFORE_A_DOOM_LOOP: Final = 20
_LEAST_INTERVAL_S: Final = 0.001


class Chaos(StrictModel):
    """Faults by chance for a soak test: what `Simulator(chaos=...)` does to requests that no turn is left for.

    `rates` is the probability of each kind, for each attempt; what is missing to 1 is the probability of no fault.
    `upload_reset` is not among them: it strikes before the body tells which request it is.

    An attempt's fault depends on `seed`, the request's key (see `Turn`) and the number of the attempt, never on the
    order in which requests arrive. The number starts again at 1 once a request was answered whole.

    Where it strikes is drawn too: any byte of the answer for `stall`, `cut`, `early_end` and `reset` (one reset in
    five comes before the headers), any frame for `error`, `truncated_json` and `keepalive`. A `status` is one of
    `statuses`, one in four with a proxy's HTML page, and with one of five hints, evenly: none, `retry-after`,
    `retry-after-ms`, `x-should-retry: true` or `false`. An `error` is, evenly, the provider's usual one, a rate limit
    or an invalid request. No hint asks for a longer wait than `longest_wait_s` seconds, nor does `slow_headers` or
    the interval of `keepalive` take longer.
    """

    seed: int = 0
    rates: dict[FaultKind, Rate] = _RATES
    statuses: Annotated[tuple[Status, ...], FROM_LIST, Field(min_length=1)] = (429, 500, 502, 503, 529)
    longest_wait_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.02

    @model_validator(mode="after")
    def _rates_are_probabilities(self) -> Chaos:
        if "upload_reset" in self.rates:
            raise ValueError("rates: upload_reset cannot come by chance, give it to a Turn")
        if (total := sum(self.rates.values())) > 1 + _ROUNDING:
            raise ValueError(f"rates add up to {total:g}, expected at most 1: the rest is the probability of no fault")
        return self

    def fault_for(self, key: str, attempt: int) -> Fault | None:
        """What the n-th attempt (from 1) of the request with this key meets."""
        random = Random(f"{self.seed}|{attempt}|{key}")  # noqa: S311 - chance for a simulation, no secret
        drawn = random.random()
        for kind in get_args(FaultKind):  # in this order, whatever the order of the rates
            drawn -= self.rates.get(kind, 0.0)
            if drawn < 0:
                return self._fault(kind, random)
        return None

    def _fault(self, kind: FaultKind, random: Random) -> Fault:
        wait_s = random.uniform(0, self.longest_wait_s)
        share = random.random()
        match kind:
            case "status":
                return self._status(random, wait_s)
            case "reset" if random.random() < _SHARE_OF_RESETS_BEFORE_HEADERS:
                return Fault(kind=kind)
            case "stall" | "cut" | "early_end" | "reset" | "truncated_json":
                return Fault(kind=kind, after_share=share)
            case "error":
                return Fault.model_validate({"kind": kind, "after_share": share, **_one_of(_ERRORS, random)})
            case "keepalive":
                count = random.randint(1, _MOST_KEEPALIVES)
                interval_s = max(wait_s, _LEAST_INTERVAL_S)
                return Fault(kind=kind, after_share=share, count=count, interval_s=interval_s)
            case "slow_headers":
                return Fault(kind=kind, delay_s=wait_s)
            case "doom_loop":
                return Fault(kind=kind, after_deltas=int(share * _MOST_DELTAS_BEFORE_A_DOOM_LOOP))
            case _:
                return Fault(kind=kind)

    def _status(self, random: Random, wait_s: float) -> Fault:
        hints: tuple[dict[str, str], ...] = (
            {},
            {"retry-after": f"{wait_s:.3f}"},
            {"retry-after-ms": f"{wait_s * 1000:.0f}"},
            {"x-should-retry": "true"},
            {"x-should-retry": "false"},
        )
        status, headers = _one_of(self.statuses, random), _one_of(hints, random)
        has_page = random.random() < _SHARE_OF_STATUSES_WITH_A_PAGE
        return Fault(kind="status", status=status, headers=headers, body=_PAGE if has_page else None)


def _one_of(options: Sequence[_T], random: Random) -> _T:
    return options[int(random.random() * len(options))]
