"""A weights' file in the format of the bundled model, of two small layers: 50 kB that can be damaged often."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

WIDTH, LAYERS, HEADS, INNER, POSITIONS, KINDS, BLOCK = 64, 2, 2, 96, 40, 2, 32
MARKS = ["<s>", "<pad>", "</s>", "<unk>"]
PIECES = [
    *MARKS,
    *(
        "\u2581",
        "\u2581query",
        "\u2581passage",
        ":",
        "a",
        "b",
        "ab",
        "\u2581a",
        "\u4f60",
        "\U0001f642",
        "e",
        "\u0301",
        "<mask>",
    ),
]
RULES = {0x01: [], 0x09: [0x20], 0xA0: [0x20], 0xFF1C: [0x3C], 0xFDFA: [0x61] * 18}


def _floats(random: Random, count: int, around: float = 0.0) -> bytes:
    return struct.pack(f"<{count}f", *(around + random.uniform(-0.1, 0.1) for _ in range(count)))


def _four_bits(random: Random, count: int) -> bytes:
    return b"".join(struct.pack("<e", random.uniform(0.01, 0.05)) + random.randbytes(16) for _ in range(count // BLOCK))


def write(path: Path, seed: int = 1) -> None:
    """Write the file; the same seed gives the same bytes."""
    random, words = Random(seed), len(PIECES) + 3
    texts = [piece.encode() for piece in PIECES]
    offsets = [sum(map(len, texts[:i])) for i in range(len(texts) + 1)]
    head = struct.pack("<4sI7ifi", b"E5S1", 1, WIDTH, LAYERS, HEADS, INNER, words, POSITIONS, KINDS, 1e-12, BLOCK)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, offsets[-1]) + struct.pack(f"<{len(offsets)}I", *offsets)
    head += struct.pack(f"<{len(PIECES)}f", *(0 if p in MARKS else -random.uniform(1, 9) for p in PIECES)) + b"".join(
        texts
    )
    rules = b"".join(struct.pack(f"<IB{len(to)}I", code, len(to), *to) for code, to in sorted(RULES.items()))
    head += struct.pack("<iI", len(RULES), len(rules)) + rules
    tensors: dict[str, tuple[int, int, bytes]] = {"emb.word": (1, words * WIDTH, _four_bits(random, words * WIDTH))}

    def floats(name: str, count: int, around: float = 0.0) -> None:
        tensors[name] = (0, count, _floats(random, count, around))

    for name, count, around in (
        ("pos", POSITIONS * WIDTH, 0),
        ("type", KINDS * WIDTH, 0),
        ("ln.w", WIDTH, 1),
        ("ln.b", WIDTH, 0),
    ):
        floats(f"emb.{name}", count, around)
    for layer in range(LAYERS):
        for name, into, out in (
            *((n, WIDTH, WIDTH) for n in ("q", "k", "v", "ao")),
            ("fi", WIDTH, INNER),
            ("fo", INNER, WIDTH),
        ):
            tensors[f"l{layer}.{name}.w"] = (1, into * out, _four_bits(random, into * out))
            floats(f"l{layer}.{name}.b", out)
        for name in ("aln", "oln"):
            floats(f"l{layer}.{name}.w", WIDTH, 1)
            floats(f"l{layer}.{name}.b", WIDTH)
    at = len(head) + 4 + sum(2 + len(name) + 21 for name in tensors)
    listed, body = struct.pack("<i", len(tensors)), b""
    for name, (kind, values, data) in tensors.items():
        body += b"\0" * (-(at + len(body)) % 64)
        listed += (
            struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", kind, values, at + len(body), len(data))
        )
        body += data
    path.write_bytes(head + listed + body)
