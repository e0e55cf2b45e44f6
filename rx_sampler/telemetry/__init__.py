"""Telemetry around a sampler: the sampling log.

    with SamplingLog("sampling.jsonl") as log:
        async with Sampler(config, observer=log) as sampler: ...

`rx-sampler log` shows such a file.
"""

from .sampling_log import SamplingLog, sampling_log_from_env

__all__ = ["SamplingLog", "sampling_log_from_env"]
