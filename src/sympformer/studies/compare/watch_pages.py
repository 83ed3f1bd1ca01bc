"""A page that shows each model of a report at work on the same held-out text (`sympformer report --watch`)."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sympformer.data import Prepared
from sympformer.loading import open_target
from sympformer.progress import steps_with_progress
from sympformer.watching.command import write

TOKENS = 100


def watch_pages(runs: Mapping[str, Path], text: str, place: Path) -> dict[str, str]:
    """Write the pages into the folder `place`. runs: model -> one of its runs. Returns model -> file, for links."""
    files = {name: f"watch-{n}-{_plain(name)}.html" for n, name in enumerate(runs, start=1)}
    names = list(files)
    for i in steps_with_progress(len(names), "watching"):
        target = replace(open_target(str(runs[names[i]])), name=names[i])
        write(place / files[names[i]], [target], text)
    return files


def held_out_text(prepared: Prepared, split: str) -> str:
    """How a split begins: its first document, or as much of it as a page shows well."""
    ids = prepared.tokens(split)[:TOKENS].tolist()
    end = prepared.tokenizer.end_of_text
    return prepared.tokenizer.decode(ids[: ids.index(end)] if end in ids[1:] else ids)


def _plain(name: str) -> str:
    """A name that is the same in a file system and in a link."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")[:60] or "model"
