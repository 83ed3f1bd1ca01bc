"""The commands `sympformer data prepare` and `sympformer data info`."""

import time

from sympformer.data.config import DataConfig
from sympformer.errors import InputError
from sympformer.tables import Head, terminal_table

HEADS = [Head("split", left=True), *map(Head, ("documents", "tokens", "MB of text", "bytes per token"))]


def prepare(data: DataConfig, out: str | None = None) -> None:
    """Turn text into token files for training.

    Args:
        out: a new folder to write; by default the cache, where train finds the tokens.
    """
    from sympformer.data.tokens import open_tokens

    if data.folder is not None:
        raise InputError("data prepare makes a folder of tokens: name its --corpus, and the place with --out")
    started = time.monotonic()
    tokens = open_tokens(data, out)
    if tokens.reused:
        print(f"{tokens.folder} is up to date")
    else:
        size = sum(split.bytes for split in tokens.sheet.splits.values())
        print(f"{tokens.folder} written: {size / 1e6:.1f} MB of text in {time.monotonic() - started:.1f} s")
    info(str(tokens.folder))


def info(data: str, check: bool = False, preview: int = 0) -> None:
    """Show what a folder of prepared data holds.

    Args:
        data: the folder.
        check: read everything and compare it with its checksums.
        preview: print the text of the first so many tokens of every split.
    """
    from rich.console import Console

    from sympformer.data.tokens import Tokens

    if preview < 0:
        raise InputError(f"preview {preview} is not a number of tokens")
    tokens = Tokens.open(data, check)
    sheet, known = tokens.sheet, tokens.sheet.tokenizer
    console = Console(highlight=False, soft_wrap=True)
    sizes = f"{known['vocab_size']:,} tokens (padded {known['padded_vocab_size']:,}), sha256 {known['sha256'][:12]}"
    lines = [("corpus", sheet.corpus), ("split", sheet.split), ("tokenizer", f"{known['name']}, {sizes}")]
    for name, text in (*lines, *(("note", note) for note in sheet.notes)):
        console.print(f"{name:10} {text}", markup=False)
    rows = [
        (name, f"{s.documents:,}", f"{s.tokens:,}", f"{s.bytes / 1e6:,.2f}", f"{s.bytes / max(1, s.tokens):.2f}")
        for name, s in sheet.splits.items()
    ]
    console.print(terminal_table("", HEADS, rows))
    if check:
        console.print("checksums are right")
    for name in sheet.splits if preview else ():
        text = tokens.tokenizer.decode(tokens.tokens(name)[:preview])
        console.print(f"\n{name}:\n{text}", markup=False)


COMMANDS = {"prepare": prepare, "info": info}
