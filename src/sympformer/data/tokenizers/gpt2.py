"""`gpt2`: exactly the ids of GPT-2, 50,257 of them, from GPT-2's 50,000 merges."""

import hashlib
import os
from pathlib import Path

from sympformer.data.tokenizers.kinds import PairTokenizer
from sympformer.data.tokenizers.vocabulary import from_merges
from sympformer.errors import InputError
from sympformer.safe_files import read_bytes

HEADER = "#version: 0.2\n"
SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"  # of the merges with their header
URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/vocab.bpe"


def open_gpt2(path: str | None = None) -> PairTokenizer:
    """GPT-2's tokenizer from a merges file, or from tiktoken's cache or the network."""
    return PairTokenizer("gpt2", from_merges(_parse(_read(path), path or URL)))


def _read(path: str | None) -> str:
    if path is None:
        return _download().decode()
    file = Path(os.path.expanduser(path))
    if os.path.isdir(file):
        file = file / "merges.txt"
    try:
        return read_bytes(file).decode("utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not a possible file name
        raise InputError(
            f"cannot read GPT-2's merges at {file}: {getattr(error, 'strerror', None) or error}"
        ) from error


def _download() -> bytes:
    from tiktoken.load import read_file_cached

    try:
        return read_file_cached(URL, SHA256)
    except (OSError, ValueError) as error:  # the errors of requests are OSErrors
        raise InputError(
            "GPT-2's merges are not in tiktoken's cache and could not be downloaded: "
            "connect once, or give the merges file as gpt2:PATH/merges.txt"
        ) from error


def _parse(text: str, where: str) -> list[tuple[str, str]]:
    """The merges, checked by their sha256, with or without the header line."""
    lines = text.replace("\r\n", "\n").removeprefix(HEADER).rstrip("\n")
    if hashlib.sha256(f"{HEADER}{lines}\n".encode()).hexdigest() != SHA256:
        raise InputError(f"{where} does not hold GPT-2's 50,000 merges: its sha256 is not the expected one")
    pairs = (line.split(" ") for line in lines.split("\n"))
    return [(left, right) for left, right in pairs]
