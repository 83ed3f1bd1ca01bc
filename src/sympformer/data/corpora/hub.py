"""Datasets of the Hugging Face hub, streamed: nothing is downloaded that is not read.

`HF_ENDPOINT` chooses another hub, as for every tool of that family.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

from sympformer.data.corpora.formats import as_text
from sympformer.data.corpora.source import SPLITS, Item, Source
from sympformer.errors import InputError, missing_extra

RETRIES, WAIT = 1, 1  # tries and seconds between them, each try with the backoff of the hub library below it


class HubSet(NamedTuple):
    """A dataset on the hub, and its splits where they are known without asking."""

    repo: str
    splits: tuple[str, ...] = ()
    config: str | None = None


HUB = {
    "tinystories": HubSet("roneneldan/TinyStories", ("train", "validation")),
    "openwebtext": HubSet("Skylion007/openwebtext", ("train",)),
}
# what other datasets call their held-out splits
ALIASES = {"valid": "validation", "val": "validation", "dev": "validation"}


def open_hub(name: str, column: str) -> Source:
    """The source behind `tinystories`, `openwebtext` or `hub:OWNER/NAME[:CONFIG]`; known names need no network yet."""
    wanted = HUB.get(name) or _parse(name)
    named = {split: split for split in wanted.splits} or _find_splits(wanted)
    return Source(
        name=name,
        kind="hub",
        identity={"dataset": wanted.repo, "config": wanted.config},
        splits={split: partial(_stream, wanted, theirs, column) for split, theirs in named.items()},
    )


def _parse(name: str) -> HubSet:
    _, repo, *config = name.split(":")
    if len(config) > 1 or repo.count("/") > 1 or not all(repo.split("/")):
        raise InputError(f"corpus {name!r} is not hub:OWNER/NAME or hub:OWNER/NAME:CONFIG")
    return HubSet(repo, config=config[0] if config else None)


def _find_splits(wanted: HubSet) -> dict[str, str]:
    theirs = list(_load(wanted))
    named = {ALIASES.get(split, split): split for split in theirs}
    if "train" not in named:
        raise InputError(f"dataset {wanted.repo} has no split 'train': it has {', '.join(theirs)}")
    return {split: named[split] for split in SPLITS if split in named}


def _stream(wanted: HubSet, split: str, column: str) -> Iterator[Item]:
    loaded = _load(wanted)
    if split not in loaded:
        raise InputError(f"dataset {wanted.repo} has no split {split!r}: it has {', '.join(loaded)}")
    dataset = loaded[split]
    known = (dataset.info.splits or {}).get(split)
    total = known.num_examples if known else None
    rows = iter(dataset)
    for number in range(1, 1 << 62):
        with _friendly(wanted.repo):
            row = next(rows, None)
        if row is None:
            return
        text = as_text(row, column, f"dataset {wanted.repo}, {split} row {number}")
        yield Item(text, number / total if total else None)


@cache
def _load(wanted: HubSet) -> dict[str, Any]:
    try:
        import datasets
    except ImportError as error:
        raise missing_extra(f"reading {wanted.repo} from the hub", "the package datasets", "data") from error
    _calm(datasets)
    with _friendly(wanted.repo):
        try:
            return dict(datasets.load_dataset(wanted.repo, wanted.config, streaming=True))
        except RuntimeError as error:
            if "script" not in str(error):
                raise
            # an old dataset that is a program: the hub keeps a converted copy on a branch of its own
            converted = datasets.load_dataset(
                wanted.repo, wanted.config, streaming=True, revision="refs/convert/parquet"
            )
            return dict(converted)


def _calm(datasets: Any) -> None:
    """Patience that a person can bear (the defaults wait for minutes), and no log lines between our own."""
    import huggingface_hub.utils.logging as hub_logging

    config = datasets.config
    config.STREAMING_READ_MAX_RETRIES = config.STREAMING_OPEN_MAX_RETRIES = RETRIES
    config.STREAMING_READ_RETRY_INTERVAL = config.STREAMING_OPEN_RETRY_INTERVAL = WAIT
    datasets.logging.set_verbosity_error()
    hub_logging.set_verbosity_error()


@contextmanager
def _friendly(repo: str) -> Iterator[None]:
    """Turn the errors of the hub's libraries into one sentence."""
    from datasets.exceptions import DatasetNotFoundError, DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    # the bases of the hub library's own error are the errors of whatever HTTP library it uses
    unreachable: tuple[type[BaseException], ...] = (OSError, *HfHubHTTPError.__bases__)
    try:
        yield
    except DatasetNotFoundError as error:
        raise InputError(f"the hub has no public dataset {repo!r}: check the name") from error
    except (DatasetsError, FileNotFoundError, ValueError, RuntimeError) as error:
        if "LocalEntryNotFound" in str(error):  # not on the hub, not in the cache: the hub did not answer
            raise _no_connection(repo, "no answer") from error
        raise InputError(f"the hub's dataset {repo!r} cannot be read: {_first_line(error)}") from error
    except unreachable as error:
        reason = "no answer" if "LocalEntryNotFound" in str(error) else _first_line(error)
        raise _no_connection(repo, reason) from error


def _no_connection(repo: str, reason: str) -> InputError:
    return InputError(f"no connection to the hub while reading {repo!r} ({reason}): check the network and try again")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
