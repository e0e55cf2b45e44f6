"""A llama model of 0.3 MB that says what we want, written as a GGUF in some milliseconds. Standard library only.

The model is a chain: its blocks are zero, so the last layer sees the embedding of the newest token alone, and each
output row is the sum of the embeddings of the tokens it may follow. Random +-1 vectors are nearly orthogonal, which
makes the scripted successor win by far. The final token of the prompt thus picks the script; the chat templates below
end in one of `SCRIPTS`' cue tokens. Greedy answers are known in advance.

Format: the GGUF specification, version 3 (little-endian; header, metadata, tensor infos, aligned tensor data).
"""

from __future__ import annotations

import random
import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

WIDTH = 64  # of an embedding
HEADS = 2
FEED_FORWARD = 32
CONTEXT = 131_072
GAIN = 0.5  # logits: the successor gets WIDTH * GAIN = 32, the others some 4 on either side of 0

# A cue, then what follows it, one token each. No token may stand in two places: a chain has no memory. Byte tokens
# spell characters that the server must not send in halves.
TEXT_CUE, LOOP_CUE, STORY_CUE, CALL_CUE = "<|text|>", "<|loop|>", "<|story|>", "<|tools|>"
BOTH_CUE, PLAN_CUE = "<|both|>", "<|plan|>"
THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
END = "</s>"
UMBRELLA = ["<0xE2>", "<0x98>", "<0x82>"]  # one character
SCRIPTS: Mapping[str, list[str]] = {
    TEXT_CUE: ["Hello", "▁from", "▁a", "▁tiny", "▁model:", "▁café,", "▁漢字,", "▁🚀", "▁and", "▁", *UMBRELLA, ".", END],
    THINK: ["Someone", "▁asks.", "▁Think", "▁twice.", END_THINK, "The", "▁answer", "▁is", "▁42.", END],
    LOOP_CUE: ["round", "▁and▁round", "▁we", "▁go,", "round"],
    STORY_CUE: ["Once", "▁upon", "<0x0A>", "Question:", "▁why", "?", END],
    CALL_CUE: ["Looking", "▁it", "▁up.", CALL, "\n", "{", '"', "<0x6E>"],
    # Between the tags the server's grammar leaves little choice; these links end a number, the object and the call.
    ":": ["3", "}", END_CALL, END],
    # Whole phrases as tokens: a chain that passed the tokens of a tag twice would go round for ever.
    BOTH_CUE: [
        "Both▁at▁once.",
        *('<tool_call>\n{"name":▁"fore', 'cast",▁"arguments":▁{"place":', '▁"Oslo"}}\n</tool_call>'),
        *('\n<tool_call>\n{"name":▁"clock",', '▁"arguments":▁{}}\n</tool_call>'),
        END,
    ],
    PLAN_CUE: [
        *("<think>Ask", "▁the", "▁sky.</think>"),
        *('<tool_call>\n{"name":▁"forecast",', '▁"arguments":▁{"place":▁"Rome"}', "}\n</tool_call>"),
        END,
    ],
}
TEXT = "Hello from a tiny model: café, 漢字, 🚀 and ☂."
REASONING, ANSWER = "Someone asks. Think twice.", "The answer is 42."
LOOP = ["round", " and round", " we", " go,"]
PREAMBLE = "Looking it up."
BOTH, PLAN = "Both at once.", "Ask the sky."
STORY = "Once upon\nQuestion: why?"

_PLAIN = """\
{{ bos_token }}
{%- for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor -%}
{%- set question = messages[-1].content -%}
{%- if 'loop' in question -%} LOOP {%- elif 'story' in question -%} STORY {%- else -%} TEXT {%- endif -%}
"""
PLAIN_TEMPLATE = _PLAIN.replace(" LOOP ", LOOP_CUE).replace(" STORY ", STORY_CUE).replace(" TEXT ", TEXT_CUE)

THINKING_TEMPLATE = """\
{{ bos_token }}
{%- if enable_thinking is not defined %}{% set enable_thinking = true %}{% endif -%}
{%- for message in messages %}{{ message.role }}:
{%- if message.role == 'assistant' and message.reasoning_content -%}
<think>{{ message.reasoning_content }}</think>
{%- endif %} {{ message.content }}
{% endfor -%}
{%- if add_generation_prompt -%}
<think>
{%- if not enable_thinking %}</think>{% endif -%}
{%- endif -%}
"""

TOOLS_TEMPLATE = (
    """\
{{ bos_token }}
{%- if tools %}To use a tool, write its name and arguments as JSON between tags.
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif -%}
{%- for message in messages %}{{ message.role }}: {{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{% endfor -%}
{%- if add_generation_prompt -%}"""
    + CALL_CUE
    + "{%- endif -%}\n"
)

# Each message is told apart, its ids included, so that the rendered prompt says what the server understood. What is
# said last decides: a result is answered in words; other words call for one tool, for two, for a thought and a tool.
_TURNS = """\
{{ bos_token }}
{%- for tool in tools or [] %}{{ tool | tojson }}
{% endfor -%}
{%- for message in messages %}
[{{ message.role }}{% if message.tool_call_id %} {{ message.tool_call_id }}{% endif %}]
{%- if message.role == 'assistant' and message.reasoning_content -%}
<think>{{ message.reasoning_content }}</think>
{%- endif -%}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{%- endfor -%}
{%- if add_generation_prompt -%}
{%- set last = messages[-1] -%}
{%- if last.role == 'tool' -%} TEXT {%- elif 'weather' in last.content -%} CALL {%- elif 'both' in last.content -%} BOTH
{%- elif 'plan' in last.content -%} PLAN {%- else -%} TEXT {%- endif -%}
{%- endif -%}
"""
TURNS_TEMPLATE = (
    _TURNS.replace(" TEXT ", TEXT_CUE)
    .replace(" CALL ", CALL_CUE)
    .replace(" BOTH\n", BOTH_CUE)
    .replace(" PLAN ", PLAN_CUE)
)


class TokenKind(IntEnum):
    """`tokenizer.ggml.token_type` of the specification."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Token texts in the order of their ids, and their kinds."""

    texts: list[str]
    kinds: list[TokenKind]

    @classmethod
    def of(cls, scripts: Mapping[str, list[str]]) -> Vocabulary:
        kinds = {"<unk>": TokenKind.UNKNOWN, "<s>": TokenKind.CONTROL, END: TokenKind.CONTROL}
        kinds |= {f"<0x{byte:02X}>": TokenKind.BYTE for byte in range(256)}
        kinds |= dict.fromkeys((THINK, END_THINK, CALL, END_CALL), TokenKind.USER_DEFINED)
        kinds |= {cue: TokenKind.CONTROL for cue in scripts if cue.startswith("<|")}
        for text in (text for script in scripts.values() for text in script):
            kinds.setdefault(text, TokenKind.NORMAL)
        kinds |= {character: TokenKind.NORMAL for character in "{}[]':, \n" + '"' if character not in kinds}
        return cls(list(kinds), list(kinds.values()))


@dataclass(frozen=True)
class Tensor:
    """A matrix of 32-bit floats: `shape` is the GGUF's, fastest dimension first."""

    name: str
    shape: tuple[int, ...]
    values: array[float]

    @classmethod
    def filled(cls, name: str, shape: tuple[int, ...], value: float) -> Tensor:
        count = 1
        for extent in shape:
            count *= extent
        return cls(name, shape, array("f", [value]) * count)


def tensors(vocabulary: Vocabulary, scripts: Mapping[str, list[str]], seed: int) -> list[Tensor]:
    """The weights: embeddings, output rows that follow the scripts, and one block that adds nothing."""
    rng = random.Random(seed)
    embeddings = [[rng.choice((-1.0, 1.0)) for _ in range(WIDTH)] for _ in vocabulary.texts]
    rows = [[0.0] * WIDTH for _ in vocabulary.texts]
    ids = {text: index for index, text in enumerate(vocabulary.texts)}
    for cue, script in scripts.items():
        for before, after in zip([cue, *script], script, strict=False):
            rows[ids[after]] = [x + GAIN * y for x, y in zip(rows[ids[after]], embeddings[ids[before]], strict=True)]
    square, up, down = (WIDTH, WIDTH), (WIDTH, FEED_FORWARD), (FEED_FORWARD, WIDTH)
    block = {"attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square}
    block |= {"ffn_gate": up, "ffn_up": up, "ffn_down": down}
    return [
        Tensor("token_embd.weight", (WIDTH, len(embeddings)), array("f", [x for row in embeddings for x in row])),
        Tensor("output.weight", (WIDTH, len(rows)), array("f", [x for row in rows for x in row])),
        *(
            Tensor.filled(f"{name}.weight", (WIDTH,), 1.0)
            for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
        ),
        *(Tensor.filled(f"blk.0.{name}.weight", shape, 0.0) for name, shape in block.items()),
    ]


Scalar = str | bool | int | float


class Gguf:
    """The container: collect metadata and tensors, then `encode()`."""

    ALIGNMENT = 32
    F32 = 0

    def __init__(self) -> None:
        self._metadata: list[bytes] = []

    def put(self, key: str, value: Scalar) -> None:
        self._metadata.append(self._string(key) + struct.pack("<I", self._code(value)) + self._bytes(value))

    def put_list(self, key: str, values: Sequence[Scalar]) -> None:
        header = struct.pack("<IIQ", 9, self._code(values[0]), len(values))
        self._metadata.append(self._string(key) + header + b"".join(self._bytes(value) for value in values))

    def encode(self, weights: Iterable[Tensor]) -> bytes:
        infos, blobs, offset = b"", list[bytes](), 0
        for tensor in weights:
            data = self._padded(_little_endian(tensor.values))
            infos += self._string(tensor.name) + struct.pack(
                f"<I{len(tensor.shape)}QIQ", len(tensor.shape), *tensor.shape, self.F32, offset
            )
            blobs.append(data)
            offset += len(data)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(blobs), len(self._metadata)) + b"".join(self._metadata) + infos
        return self._padded(head) + b"".join(blobs)

    def _padded(self, data: bytes) -> bytes:
        return data + bytes(-len(data) % self.ALIGNMENT)

    @staticmethod
    def _string(text: str) -> bytes:
        encoded = text.encode()
        return struct.pack("<Q", len(encoded)) + encoded

    @staticmethod
    def _code(value: Scalar) -> int:
        """The specification's number for the type; whole numbers are unsigned, and signed for kinds of token."""
        match value:
            case bool():
                return 7
            case TokenKind():
                return 5
            case int():
                return 4
            case float():
                return 6
            case str():
                return 8

    def _bytes(self, value: Scalar) -> bytes:
        if isinstance(value, str):
            return self._string(value)
        return struct.pack("<" + {7: "?", 5: "i", 4: "I", 6: "f"}[self._code(value)], value)


def _little_endian(values: array[float]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def write_tiny_gguf(path: Path, *, seed: int = 7) -> Path:
    """Write the model to `path` and return it."""
    vocabulary = Vocabulary.of(SCRIPTS)
    file = Gguf()
    file.put("general.architecture", "llama")
    file.put("general.name", "tiny-chain")
    file.put("general.file_type", 0)  # all F32
    file.put("llama.context_length", CONTEXT)
    file.put("llama.embedding_length", WIDTH)
    file.put("llama.block_count", 1)
    file.put("llama.feed_forward_length", FEED_FORWARD)
    file.put("llama.attention.head_count", HEADS)
    file.put("llama.attention.head_count_kv", HEADS)
    file.put("llama.attention.layer_norm_rms_epsilon", 1e-5)
    file.put("llama.rope.dimension_count", WIDTH // HEADS)
    file.put("tokenizer.ggml.model", "llama")  # SentencePiece with byte fallback
    file.put_list("tokenizer.ggml.tokens", vocabulary.texts)
    file.put_list("tokenizer.ggml.scores", [-float(index) for index in range(len(vocabulary.texts))])
    file.put_list("tokenizer.ggml.token_type", vocabulary.kinds)
    file.put("tokenizer.ggml.bos_token_id", vocabulary.texts.index("<s>"))
    file.put("tokenizer.ggml.eos_token_id", vocabulary.texts.index(END))
    file.put("tokenizer.ggml.unknown_token_id", vocabulary.texts.index("<unk>"))
    file.put("tokenizer.ggml.add_bos_token", False)  # the templates begin with it
    path.write_bytes(file.encode(tensors(vocabulary, SCRIPTS, seed)))
    return path


if __name__ == "__main__":
    write_tiny_gguf(Path(sys.argv[1]))
