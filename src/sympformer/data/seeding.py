"""Numbers that depend on nothing but a seed and a position: the same on every machine and in every process."""

import hashlib


def digest(*parts: int | str) -> int:
    """128 bits from a seed and what follows it, e.g. `digest(seed, "split", index)`."""
    text = ":".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def fraction(*parts: int | str) -> float:
    """A number in [0, 1), uniform over seeds and positions."""
    return (digest(*parts) >> 75) / (1 << 53)
