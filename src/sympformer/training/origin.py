"""Whether a run was trained here: one from elsewhere may name any path, or a dataset of a hub, as its data.

A run's environment holds a mark of its config, made with a key that never leaves the user's cache folder. What others
send has no such mark, or one of another config.
"""

import hmac
import os
import secrets
from pathlib import Path

from sympformer.errors import InputError
from sympformer.machine import cache_root
from sympformer.safe_files import read_bytes
from sympformer.training.config import UNKNOWN, DataConfig, load_config

KEY, BYTES = "key", 32
MARK = "mark"  # in a run's environment


def mark(config: bytes) -> str | None:
    """The mark of a config; None where no key can be kept."""
    try:
        return _mark(_key() or _new_key(), config)
    except OSError:
        return None


def check_data(run: Path, data: DataConfig | None = None, trust: bool = False) -> None:
    """Refuse to open what a run from elsewhere names as its data, unless it is trusted.

    data: what will be opened, by default what the run's config names. Stories that the package tells itself are no
    data from anywhere.
    """
    from sympformer.training.run import CONFIG, read_environment

    wanted = load_config(run / CONFIG).data
    place = outside(wanted if data is None else data)
    if trust or place is None:
        return
    key, found = _key(), str(read_environment(run).get(MARK)).encode("utf-8", "replace")
    ours = key is not None and hmac.compare_digest(found, _mark(key, read_bytes(run / CONFIG)).encode())
    if ours and data in (None, wanted):
        return
    raise InputError(
        f"{run} was not trained here, and its config names {place}: if you want that opened, say --trust_data, "
        "or have the run scored on tokens of your own with 'sympformer eval RUN --data FOLDER'"
    )


def outside(data: DataConfig) -> str | None:
    """What a config names beyond the package's own stories and tokenizers, in words."""
    if data.corpus == UNKNOWN:
        return None  # nothing to open
    if data.folder is not None:
        return f"the folder {data.folder!r}"
    if data.corpus.partition(":")[0] != "storybook":
        return f"the text {data.corpus!r}"
    known = data.tokenizer == "byte" or data.tokenizer.startswith("bpe:")
    return None if known else f"the tokenizer {data.tokenizer!r}"


def _mark(key: bytes, config: bytes) -> str:
    return hmac.new(key, config, "sha256").hexdigest()


def _key() -> bytes | None:
    """The user's key, if there is one that nobody else can have made."""
    file = cache_root() / KEY
    try:
        kept = os.stat(file, follow_symlinks=False)
        alone = not hasattr(os, "geteuid") or (kept.st_uid == os.geteuid() and not kept.st_mode & 0o077)
        key = read_bytes(file, BYTES) if alone else b""
    except (OSError, InputError):
        return None
    return key if len(key) == BYTES else None


def _new_key() -> bytes:
    """A key that is kept from now on; raises OSError where something else is in its place."""
    file, key = cache_root() / KEY, secrets.token_bytes(BYTES)
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, key)
    finally:
        os.close(descriptor)
    return key
