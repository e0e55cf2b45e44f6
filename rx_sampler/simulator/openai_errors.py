"""Errors and headers that OpenAI's two wire formats share.

Shapes: https://platform.openai.com/docs/guides/error-codes and the rate limit headers of
https://platform.openai.com/docs/guides/rate-limits.
"""

from __future__ import annotations

from collections.abc import Mapping

from .answers import Answer
from .asks import Problem, status_of_code
from .faults import Fault
from .json_tools import JsonObject

__all__ = ["answer_headers", "error_body", "error_headers", "error_of", "problem_of"]

_TYPE_AND_CODE: dict[int, tuple[str, str | None]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", None),
    404: ("invalid_request_error", None),
    429: ("requests", "rate_limit_exceeded"),
}
_SERVER_ERROR = ("server_error", "server_error")
_INVALID = ("invalid_request_error", None)

_STATUS_OF_CODE: dict[str | int | None, int] = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
}

_REQUESTS_PER_MINUTE, _TOKENS_PER_MINUTE = 10_000, 2_000_000


def error_of(problem: Problem) -> JsonObject:
    """The error object, without its envelope."""
    usual_type, usual_code = _TYPE_AND_CODE.get(problem.status, _SERVER_ERROR if problem.status >= 500 else _INVALID)
    message = f"Invalid '{problem.param}': {problem.message}" if problem.param else problem.message
    return {
        "message": message,
        "type": problem.type or usual_type,
        "param": problem.param,
        "code": problem.code or (usual_code if problem.type is None else None),
    }


def error_body(problem: Problem) -> JsonObject:
    """`{"error": {...}}`."""
    return {"error": error_of(problem)}


def problem_of(fault: Fault) -> Problem:
    """The failure that a fault describes, with the status its code or type stands for."""
    named = (_STATUS_OF_CODE[word] for word in (fault.code, fault.type) if word in _STATUS_OF_CODE)
    status = status_of_code(fault.code) or next(named, 500)
    message = fault.message or "The simulated server failed while it processed the request."
    return Problem(status=status, message=message, type=fault.type, code=fault.code)


def answer_headers(answer: Answer) -> Mapping[str, str]:
    """Request id, limits and what is left of them after this answer."""
    used = answer.counts.total_tokens
    return {
        **error_headers(f"req_{answer.derivation.hexadecimal('request id', 32)}"),
        "openai-organization": "rx-sampler-simulator",
        "x-ratelimit-limit-requests": str(_REQUESTS_PER_MINUTE),
        "x-ratelimit-limit-tokens": str(_TOKENS_PER_MINUTE),
        "x-ratelimit-remaining-requests": str(_REQUESTS_PER_MINUTE - 1),
        "x-ratelimit-remaining-tokens": str(max(_TOKENS_PER_MINUTE - used, 0)),
        "x-ratelimit-reset-requests": "6ms",
        "x-ratelimit-reset-tokens": f"{used * 60_000 // _TOKENS_PER_MINUTE}ms",
    }


def error_headers(request_id: str) -> Mapping[str, str]:
    """What an error response has too."""
    return {"x-request-id": request_id, "openai-processing-ms": "1", "openai-version": "2020-10-01"}
