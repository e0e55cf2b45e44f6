"""Model answers as observables: any provider's stream becomes one vocabulary of `SamplingEvent`s.

async with Sampler(SamplerConfig(base_url="http://127.0.0.1:8080/v1", model="m")) as sampler:
    sampler.stream("Why is the sky blue?").subscribe(print)
"""

from . import operators
from .actor import SamplerActor
from .backends.base import Backend, get_backend, sampling_events, typed_chunks
from .config import DoomLoopPolicy, LoopDetection, RetryBudget, RetryPolicy, SamplerConfig
from .conversation import (
    AssistantItem,
    BackendToolCallItem,
    FunctionChoice,
    HostedTool,
    ImagePart,
    Item,
    OpaqueItem,
    ReasoningItem,
    RefusalItem,
    ResponseItem,
    SamplingRequest,
    SamplingResponse,
    SystemItem,
    TextItem,
    TextPart,
    ToolCall,
    ToolResultItem,
    ToolSpec,
    Usage,
    UserItem,
)
from .errors import EmptyResponseContext, SamplingError, SamplingErrorInfo, SamplingErrorKind
from .events import (
    AnnotationAdded,
    BackendToolCallCompleted,
    BackendToolCallStarted,
    ChannelToken,
    Completed,
    DoomLoopSignals,
    Failed,
    FirstToken,
    ImagesStripped,
    ModelMetadata,
    RateLimit,
    ReasoningCompleted,
    ResponseStarted,
    Retrying,
    SamplingEvent,
    StreamStarted,
    ToolCallDelta,
    event_from_json,
    event_json_schema,
    event_to_json,
)
from .feeds import RequestId
from .handles import SamplerHandle
from .metrics import LatencyMetrics
from .observing import RequestFacts, RequestWatch, SamplerObserver
from .outcome import failures_as_events
from .portal import BlockingSampler, blocking
from .providers import PRESETS, Preset
from .retry import Action, Decision, RetryState, SharedLimits, classify, retrying
from .sampler import Sampler, SamplingResult
from .scheduling import LoopTimeScheduler
from .stage import Machine, through
from .wire.sse import SseFrame, sse_frames

__all__ = [
    "PRESETS",
    "Action",
    "AnnotationAdded",
    "AssistantItem",
    "Backend",
    "BackendToolCallCompleted",
    "BackendToolCallItem",
    "BackendToolCallStarted",
    "BlockingSampler",
    "ChannelToken",
    "Completed",
    "Decision",
    "DoomLoopPolicy",
    "DoomLoopSignals",
    "EmptyResponseContext",
    "Failed",
    "FirstToken",
    "FunctionChoice",
    "HostedTool",
    "ImagePart",
    "ImagesStripped",
    "Item",
    "LatencyMetrics",
    "LoopDetection",
    "LoopTimeScheduler",
    "Machine",
    "ModelMetadata",
    "OpaqueItem",
    "Preset",
    "RateLimit",
    "ReasoningCompleted",
    "ReasoningItem",
    "RefusalItem",
    "RequestFacts",
    "RequestId",
    "RequestWatch",
    "ResponseItem",
    "ResponseStarted",
    "RetryBudget",
    "RetryPolicy",
    "RetryState",
    "Retrying",
    "Sampler",
    "SamplerActor",
    "SamplerConfig",
    "SamplerHandle",
    "SamplerObserver",
    "SamplingError",
    "SamplingErrorInfo",
    "SamplingErrorKind",
    "SamplingEvent",
    "SamplingRequest",
    "SamplingResponse",
    "SamplingResult",
    "SharedLimits",
    "SseFrame",
    "StreamStarted",
    "SystemItem",
    "TextItem",
    "TextPart",
    "ToolCall",
    "ToolCallDelta",
    "ToolResultItem",
    "ToolSpec",
    "Usage",
    "UserItem",
    "blocking",
    "classify",
    "event_from_json",
    "event_json_schema",
    "event_to_json",
    "failures_as_events",
    "get_backend",
    "operators",
    "retrying",
    "sampling_events",
    "sse_frames",
    "through",
    "typed_chunks",
]
