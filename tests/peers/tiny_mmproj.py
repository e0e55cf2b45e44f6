"""Eyes for `tiny_gguf`'s model: a vision tower that sees four patches in any picture, all of them black.

What it takes for llama.cpp to accept images and to make tokens of them. Metadata and tensors are those of its `clip`
architecture with LLaVA's projector of two layers.
"""

from __future__ import annotations

from pathlib import Path

from .tiny_gguf import WIDTH, Gguf, Tensor

__all__ = ["IMAGE_TOKENS", "write_tiny_mmproj"]

_SIDE, _PATCH = 16, 8  # in pixels; every picture is made this large
_INNER, _FEED_FORWARD = 16, 32
IMAGE_TOKENS = (_SIDE // _PATCH) ** 2


def write_tiny_mmproj(path: Path) -> Path:
    """Write the tower to `path` and return it."""
    file = Gguf()
    file.put("general.architecture", "clip")
    file.put("general.file_type", 0)  # all F32
    file.put("clip.has_vision_encoder", True)
    file.put("clip.projector_type", "mlp")
    file.put("clip.use_gelu", True)
    file.put("clip.vision.image_size", _SIDE)
    file.put("clip.vision.patch_size", _PATCH)
    file.put("clip.vision.embedding_length", _INNER)
    file.put("clip.vision.feed_forward_length", _FEED_FORWARD)
    file.put("clip.vision.projection_dim", WIDTH)
    file.put("clip.vision.block_count", 1)
    file.put("clip.vision.attention.head_count", 1)
    file.put("clip.vision.attention.layer_norm_epsilon", 1e-5)
    file.put_list("clip.vision.image_mean", [0.5] * 3)
    file.put_list("clip.vision.image_std", [0.5] * 3)
    path.write_bytes(file.encode(_tensors()))
    return path


def _tensors() -> list[Tensor]:
    layers = {f"v.blk.0.attn_{name}": (_INNER, _INNER) for name in ("q", "k", "v", "out")}
    layers |= {"v.blk.0.ffn_up": (_INNER, _FEED_FORWARD), "v.blk.0.ffn_down": (_FEED_FORWARD, _INNER)}
    layers |= {"mm.0": (_INNER, WIDTH), "mm.2": (WIDTH, WIDTH)}
    return [
        Tensor.filled("v.patch_embd.weight", (_PATCH, _PATCH, 3, _INNER), 0.0),
        Tensor.filled("v.position_embd.weight", (_INNER, IMAGE_TOKENS), 0.0),
        *(Tensor.filled(f"v.blk.0.{name}.weight", (_INNER,), 1.0) for name in ("ln1", "ln2")),
        *(Tensor.filled(f"v.blk.0.{name}.bias", (_INNER,), 0.0) for name in ("ln1", "ln2")),
        *(Tensor.filled(f"{name}.weight", shape, 0.0) for name, shape in layers.items()),
        *(Tensor.filled(f"{name}.bias", shape[1:], 0.0) for name, shape in layers.items()),
    ]
