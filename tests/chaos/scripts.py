"""What each request of a storm meets and does: drawn from seed and number alone, so that any one can be repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from random import Random
from typing import Any, Final, Literal

from rx_sampler import SamplingRequest
from rx_sampler.conversation import ImagePart, TextPart, UserItem
from rx_sampler.simulator import Chaos, Fault, FaultKind, Timing, Turn

__all__ = ["BACKENDS", "PROFILES", "Deed", "Profile", "Script", "name_of", "script"]

How = Literal["stream", "submit", "collect"]
Profile = Literal["open", "narrow", "single", "hasty", "patient", "refused"]
Act = Literal["dispose", "cancel", "cancel_in_thread", "raise", "raise_at_end", "submit_again"]

BACKENDS: Final = ("chat_completions", "responses", "messages")
PROFILES: Final[dict[Profile, float]] = {
    "open": 0.38,
    "narrow": 0.2,
    "single": 0.1,
    "hasty": 0.2,
    "patient": 0.06,
    "refused": 0.06,
}
"""Kinds of samplers, and the share of requests that each gets; `fleet` says what they are."""

_RATES: Final[dict[FaultKind, float]] = {
    "status": 0.15,
    "close": 0.05,
    "reset": 0.08,
    "cut": 0.08,
    "early_end": 0.03,
    "silent": 0.005,
    "stall": 0.015,
    "error": 0.06,
    "truncated_json": 0.04,
    "keepalive": 0.05,
    "slow_headers": 0.04,
}
_STATUSES: Final = (400, 401, 404, 408, 409, 413, 429, 429, 429, 500, 502, 503, 529)
_LONGEST_WAIT_S: Final = 0.01

_MOST_FAULTS: Final = 8
"""More than any sampler of a fleet has attempts."""

_IMAGE_REFUSED: Final = Fault(
    kind="status", status=400, body={"error": {"message": "not an image", "type": "t", "code": "invalid_image"}}
)
_RARE: Final = (
    Fault(kind="status", status=200, body="<html>Sign in</html>"),
    Fault(kind="status", status=307, headers={"location": "http://127.0.0.1:9/elsewhere"}),
    Fault(kind="upload_reset", after_bytes=20),
)
_ENDLESS: Final = (
    Fault(kind="silent"),
    Fault(kind="stall", after_share=0.4),
    Fault(kind="keepalive", after_share=0.3, interval_s=0.02),
)
_NAME_HEADER: Final = "x-simulator-request"
_LABELS: Final = (
    ("tail_repetition:8@thinking",),
    ("low_logprob@text", "tail_repetition:16@thinking"),
    ("exact_repetition:3x40@text",),
    ("tail_repetition:8@text", "something_new:1@thinking"),
)
_WORDS: Final = ("rain", "sun", "wind", "Øre", "雨", "hail", "calm", "frost", "🌦", "mist,", "squall.", "thaw")
_LOOP: Final = "round and round we go, " * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What the caller does to a request of its own: after so many events, after so many seconds, or both in turn."""

    act: Act
    after_events: int | None = None
    after_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Script:
    """One request: where it goes, what it meets there, attempt by attempt, and what its caller does meanwhile."""

    seed: int
    index: int
    part: str
    backend: str
    profile: Profile
    how: How
    turn: Turn
    has_image: bool
    deed: Deed | None
    late_after: int | None
    """A second subscriber comes after so many events."""
    from_thread: bool
    """Submitted from another thread than the loop's."""
    again: Script | None = None
    """What is submitted under the same id."""

    @property
    def name(self) -> str:
        return f"{self.seed}-{self.index}{self.part}"

    @property
    def text(self) -> str:
        """What a whole answer says."""
        return self.turn.text or ""

    @cached_property
    def request(self) -> SamplingRequest:
        """The request, which brings its own turn to the simulator."""
        turn = json.dumps(self.turn.model_dump(mode="json", exclude_unset=True))
        image = (ImagePart(url=f"https://images.example/{self.name}.png"),) if self.has_image else ()
        return SamplingRequest(
            items=(UserItem(content=(TextPart(text=f"Question {self.name}"), *image)),),
            extra_headers={_NAME_HEADER: self.name, "x-simulator-turn": turn},
        )

    def __str__(self) -> str:
        turn = json.dumps(self.turn.model_dump(mode="json", exclude_unset=True), ensure_ascii=False)
        ways = f"{self.how} on {self.profile}/{self.backend}"
        more = [f"image={self.has_image}", f"late_after={self.late_after}", f"from_thread={self.from_thread}"]
        lines = [f"request {self.name}: {ways}, {self.deed}, {', '.join(more)}", f"  turn {turn}"]
        return "\n".join([*lines, *([f"  again: {self.again}"] if self.again else [])])


def name_of(request: SamplingRequest) -> str:
    """The name of the script that a request was made from."""
    return request.extra_headers[_NAME_HEADER]


def script(seed: int, index: int, *, closing: bool = False) -> Script:
    """The script of the request with this number; `closing` for one that is under way when its sampler is closed."""
    random = Random(f"{seed}|{index}")
    profile = random.choices(list(PROFILES), list(PROFILES.values()))[0]
    backend = random.choice(BACKENDS)
    how = random.choices(("stream", "submit", "collect"), (0.4, 0.4, 0.2))[0]
    if profile == "patient":
        deed: Deed | None = Deed(act="dispose" if how == "stream" else "cancel", after_s=random.uniform(0, 0.3))
    else:
        deed = _deed(random, how)
    late_after = random.randint(1, 30) if how == "submit" and random.random() < 0.4 else None
    # A sampler that nobody entered knows of no loop that another thread could hand a request to.
    from_thread = how == "submit" and profile not in ("single", "patient") and random.random() < 0.1
    has_image = random.random() < 0.15
    first = Script(
        seed=seed,
        index=index,
        part="",
        backend=backend,
        profile=profile,
        how=how,
        turn=_turn(random, seed, f"{index}", backend, profile, has_image),
        has_image=has_image,
        deed=deed,
        late_after=late_after,
        from_thread=from_thread,
    )
    if closing:
        return replace(first, deed=None, from_thread=False)
    if deed is None or deed.act != "submit_again":
        return first
    part = "-again"
    turn = _turn(random, seed, f"{index}{part}", backend, profile, has_image)
    return replace(first, late_after=None, again=replace(first, part=part, turn=turn, deed=None, late_after=None))


def _turn(random: Random, seed: int, key: str, backend: str, profile: Profile, has_image: bool) -> Turn:
    """What the server does, attempt by attempt, and says in the end."""
    faults = _faults(random, seed, key, backend)
    if has_image and random.random() < 0.6:
        for _ in range(random.choice((1, 1, 2))):  # refused a second time, there is none to leave out
            faults.insert(random.randint(0, len(faults)), _IMAGE_REFUSED)
    if profile == "patient":
        faults.append(random.choice(_ENDLESS))
    loops = profile == "hasty" and random.random() < 0.15
    fields: dict[str, Any] = {
        "text": _LOOP if loops else " ".join(random.choices(_WORDS, k=random.randint(1, 24))),
        "faults": tuple(faults),
    }
    if random.random() < 0.3:
        fields["reasoning"] = " ".join(random.choices(_WORDS, k=random.randint(1, 8)))
    if random.random() < 0.3:
        fields["delta_chars"] = random.choice((1, 7, 40))
    if random.random() < 0.4:
        pace = random.uniform(300, 3000)
        fields["timing"] = Timing(time_to_first_token_s=random.uniform(0, 0.02), tokens_per_second=pace)
    return Turn(**fields)


def _faults(random: Random, seed: int, key: str, backend: str) -> list[Fault | None]:
    """One for each attempt, up to the first that meets none."""
    chaos, faults = _chaos(seed), list[Fault | None]()
    while len(faults) < _MOST_FAULTS:
        fault = chaos.fault_for(key, len(faults) + 1)
        if random.random() < 0.04:
            fault = random.choice(_RARE)
        elif backend == "responses" and random.random() < 0.12:
            fault = Fault(kind="doom_loop", after_deltas=random.randint(0, 6), triggers=random.choice(_LABELS))
        if fault is None:
            break
        faults.append(fault)
    return faults


@lru_cache(maxsize=8)
def _chaos(seed: int) -> Chaos:
    return Chaos(seed=seed, rates=_RATES, statuses=_STATUSES, longest_wait_s=_LONGEST_WAIT_S)


def _deed(random: Random, how: How) -> Deed | None:
    if random.random() >= 0.45:
        return None
    acts: dict[How, dict[Act, float]] = {
        "stream": {"dispose": 3, "raise": 1, "raise_at_end": 0.5},
        "submit": {
            "dispose": 1,
            "cancel": 2,
            "cancel_in_thread": 0.5,
            "raise": 1,
            "raise_at_end": 0.5,
            "submit_again": 1.5,
        },
        "collect": {"cancel": 1},
    }
    act = random.choices(list(acts[how]), list(acts[how].values()))[0]
    if act == "raise_at_end":
        return Deed(act=act)
    after_s = random.random() ** 2 * random.choice((0.02, 0.2, 1.0))
    if how == "collect" or (act != "raise" and random.random() < 0.3):
        return Deed(act=act, after_s=after_s)
    waits = act != "raise" and random.random() < 0.5
    return Deed(act=act, after_events=1 + int(random.random() ** 2 * 25), after_s=after_s / 10 if waits else None)
