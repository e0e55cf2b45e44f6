"""Flow: bounded bridges between observables and `async for`, and demand that reaches the socket.

Rx has no backpressure. Here a consumer that has enough makes the requests behind it stop reading, whatever operators
stand between: `to_async_iterator`, `subscribe_with_demand`. `Demand`, `Gate`, `current_demand` and `demanding` are for
sources and operators of one's own that take part.
"""

from rx_sampler.demand import Demand, Gate, current_demand, demanding

from .buffer import BufferOverflowError, Overflow
from .iterators import BoundedIterator, to_async_iterator
from .sources import from_async_iterable
from .subscription import DemandSubscription, subscribe_with_demand

__all__ = [
    "BoundedIterator",
    "BufferOverflowError",
    "Demand",
    "DemandSubscription",
    "Gate",
    "Overflow",
    "current_demand",
    "demanding",
    "from_async_iterable",
    "subscribe_with_demand",
    "to_async_iterator",
]
