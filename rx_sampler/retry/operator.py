"""`retrying`, the operator that joins attempts, and what it shares with a sampler's own requests."""

from __future__ import annotations

import os
import random as random_module
from collections.abc import Callable, Sequence

from reactivex import Observable, abc

from rx_sampler.config import DoomLoopPolicy, RetryPolicy
from rx_sampler.course import Course
from rx_sampler.events import SamplingEvent
from rx_sampler.scheduling import clock_of

from .attempts import Attempts
from .environment import max_retries_from
from .limits import SharedLimits

__all__ = ["joined_attempts", "retrying"]


def retrying(
    policy: RetryPolicy | None = None,
    *,
    doom_loop: DoomLoopPolicy | None = None,
    limits: SharedLimits | None = None,
    random: Callable[[], float] = random_module.random,
    request_id: str = "offline",
) -> Callable[[Observable[SamplingEvent]], Observable[SamplingEvent]]:
    """Subscribe to the source again when it fails in a way that another attempt may mend.

        source    -S-t-x   -S-t-C|
        retrying  -S-t-R---S-t-C|

    In: the events of one attempt, its failure as `on_error(SamplingError)`. Out: the events of all attempts, numbered
    from 1 in `attempt`, `Retrying` before each wait; the last failure by `on_error`, as any error that is no
    `SamplingError` or was raised by a subscriber. `doom_loop` gives doom loops a budget of their own; `limits` are
    shared with other requests. The number of retries is `policy.max_retries`, unless the environment says otherwise.

    Cold: one subscription to the source for each attempt. Waits are timers on the subscription's scheduler, by default
    one on the running loop; `random` draws the jitter (values from 0 up to 1). Dispose ends a wait at once. A source
    that fails synchronously does not deepen the stack.
    """
    followed = policy if policy is not None else RetryPolicy()

    def operator(source: Observable[SamplingEvent]) -> Observable[SamplingEvent]:
        def subscribe(
            observer: abc.ObserverBase[SamplingEvent], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            course = Course(request_id, clock_of(scheduler)())
            return joined_attempts(
                source,
                course,
                followed,
                observer,
                scheduler,
                doom_loop=doom_loop,
                limits=limits,
                random=random,
            )

        return Observable(subscribe)

    return operator


def joined_attempts(
    source: Observable[SamplingEvent],
    course: Course,
    policy: RetryPolicy,
    observer: abc.ObserverBase[SamplingEvent],
    scheduler: abc.SchedulerBase | None,
    *,
    doom_loop: DoomLoopPolicy | None = None,
    limits: SharedLimits | None = None,
    random: Callable[[], float] = random_module.random,
    images: Sequence[str] = (),
) -> abc.DisposableBase:
    """Subscribe to `source`, attempt by attempt, as `retrying` says.

    `course` tells the source which attempt it is and how to go about it; `images` are the URLs that it can leave out.
    """
    max_retries = max_retries_from(policy.max_retries, os.environ)
    if max_retries != policy.max_retries:
        policy = policy.model_copy(update={"max_retries": max_retries})
    return Attempts(
        source, course, policy, observer, scheduler, doom_loop, limits or SharedLimits(), random, images
    ).start()
