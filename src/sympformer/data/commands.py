"""The commands `sympformer data prepare` and `sympformer data info`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from sympformer.data.corpora import OnBadFile
from sympformer.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from sympformer.data.prepared import Split


def prepare(
    corpus: str = "storybook",
    tokenizer: str = "bpe:2048",
    out: str | None = None,
    seed: int = 0,
    validation: float = 0.05,
    test: float = 0.0,
    column: str = "text",
    separator: str = "auto",
    encoding: str = "utf-8",
    on_bad_file: OnBadFile = "stop",
    limit: int | None = None,
    overlap_words: int = 0,
    overwrite: bool = False,
) -> None:
    """Turn text into token files for training.

    Args:
        corpus: storybook or storybook:N (stories that come with the package), tinystories, openwebtext or
            hub:OWNER/NAME (from the Hugging Face hub), or the path of a .txt, .md, .html, .jsonl, .csv or .parquet
            file, plain or .gz, or a folder of them.
        tokenizer: bpe:N (trained on the corpus), gpt2 or gpt2:PATH/merges.txt, byte, or a folder with a saved one.
        out: folder to write; by default data/<corpus>-<tokenizer>.
        seed: draws the held-out documents.
        validation: share of the text to hold out for validation, where the corpus has no such split of its own.
        test: share of the text to hold out for a test, where the corpus has no such split of its own.
        column: field or column that holds the text in .jsonl, .csv, .parquet and hub datasets.
        separator: what stands between the documents of a .txt file: file (one document a file), blank (blank lines),
            or a text like <|endoftext|>; auto finds out.
        encoding: how the files are written: utf-8, cp1252, latin-1, utf-16 or any other that Python knows.
        on_bad_file: stop at a file of a folder that cannot be read, or skip it and say so.
        limit: take only the first so many documents of each split.
        overlap_words: drop documents of the test split that share a run of so many words with another split; 20 is
            usual, 0 keeps them all.
        overwrite: replace data in the folder that was prepared in another way.
    """
    from sympformer.data.preparation import prepare as run

    started = time.monotonic()
    prepared = run(
        corpus,
        tokenizer,
        out,
        seed=seed,
        validation=validation,
        test=test,
        column=column,
        separator=separator,
        encoding=encoding,
        on_bad_file=on_bad_file,
        limit=limit,
        overlap_words=overlap_words,
        overwrite=overwrite,
    )
    if prepared.reused:
        print(f"{prepared.folder} is up to date")
    else:
        seconds = time.monotonic() - started
        size = sum(split.bytes for split in prepared.sheet.splits.values())
        print(f"{prepared.folder} written: {size / 1e6:.1f} MB of text in {seconds:.1f} s")
    info(str(prepared.folder))


def info(data: str = "data/storybook-bpe-2048", check: bool = False, preview: int = 0) -> None:
    """Show what a folder of prepared data holds.

    Args:
        data: the folder.
        check: read everything and compare it with its checksums.
        preview: print the text of the first so many tokens of every split.
    """
    from rich.console import Console

    from sympformer.data.prepared import load_prepared

    if preview < 0:
        raise InputError(f"preview {preview} is not a number of tokens")
    prepared = load_prepared(Path(data), verify=check)
    sheet = prepared.sheet
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"corpus     {sheet.corpus['name']}", markup=False)
    console.print(f"split      {sheet.split}", markup=False)
    tokenizer = sheet.tokenizer
    console.print(
        f"tokenizer  {tokenizer['name']}, {tokenizer['vocab_size']:,} tokens "
        f"(padded {tokenizer['padded_vocab_size']:,}), sha256 {tokenizer['sha256'][:12]}",
        markup=False,
    )
    for note in sheet.notes:
        console.print(f"note       {note}", markup=False)
    console.print(_table(sheet.splits))
    if check:
        console.print("checksums are right")
    for name in sheet.splits if preview else ():
        text = prepared.tokenizer.decode(prepared.tokens(name)[:preview])
        console.print(f"\n{name}:\n{text}", markup=False)


def _table(splits: "dict[str, Split]") -> "Table":
    from rich.table import Column, Table

    heads = ("documents", "tokens", "MB of text", "bytes per token")
    table = Table("split", *(Column(head, justify="right") for head in heads))
    for name, split in splits.items():
        counts = (f"{split.documents:,}", f"{split.tokens:,}", f"{split.bytes / 1e6:,.2f}")
        table.add_row(name, *counts, f"{split.bytes / split.tokens:.2f}")
    return table


COMMANDS = {"prepare": prepare, "info": info}
