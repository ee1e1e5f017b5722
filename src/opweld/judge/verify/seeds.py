"""Seeds of separate streams of random numbers, all derived from the one seed of a judgement."""

from __future__ import annotations

import hashlib


def stream(seed: int, *names: str | int) -> int:
    """A seed of 63 bits for the stream of that name.

    SHA-256 over the seed and the names: whoever knows the seed of one stream, such as that of the
    parameters, which both sides are built from, cannot tell that of another, such as the inputs'.
    """
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
