"""Where the sampling log lies, by the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["default_log_path", "log_path_from_env", "wants_content"]

_ON: Final = frozenset({"1", "true", "on", "yes"})
_OFF: Final = frozenset({"", "0", "false", "off", "no"})


def default_log_path(environ: Mapping[str, str]) -> Path:
    """`rx_sampler/sampling.jsonl` in the user's folder for state: `XDG_STATE_HOME`, else `~/.local/state`.

    A relative `XDG_STATE_HOME` is ignored, as the XDG base directory specification asks. Raises RuntimeError where
    the user has no home.
    """
    state = environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return folder / "rx_sampler" / "sampling.jsonl"


def log_path_from_env(environ: Mapping[str, str]) -> Path | None:
    """The file that the environment asks for; None if it asks for no log. Raises as `default_log_path`.

    `RX_SAMPLER_LOG` is a path, or a yes (`1`, `true`, `on`, `yes`) for the default path, or a no (empty, `0`, `false`,
    `off`, `no`). Where it is not set, `GROK_LOG_SAMPLING` may say yes.
    """
    said = environ.get("RX_SAMPLER_LOG")
    if said is None:
        said = environ.get("GROK_LOG_SAMPLING", "").strip().lower()
        return default_log_path(environ) if said in {"1", "true", "on"} else None
    if said.strip().lower() in _OFF:
        return None
    return default_log_path(environ) if said.strip().lower() in _ON else Path(said).expanduser()


def wants_content(environ: Mapping[str, str]) -> bool:
    """Whether `RX_SAMPLER_LOG_CONTENT` says yes."""
    return environ.get("RX_SAMPLER_LOG_CONTENT", "").strip().lower() in _ON
