"""Datasets of the Hugging Face hub, streamed: nothing is downloaded that is not read.

`HF_ENDPOINT` chooses another hub, as for every tool of that family.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

from sympformer.data.readers import as_text
from sympformer.errors import InputError, missing_extra

RETRIES, WAIT = 1, 1  # tries and seconds between them, each try with the backoff of the hub library below it
NAMED = re.compile(r"hub:(?P<repo>[^:@/]+(?:/[^:@/]+)?)(?::(?P<config>[^:@]+))?(?:@(?P<revision>[^:@]+))?")
ALIASES = {"valid": "validation", "val": "validation", "dev": "validation"}  # of held-out splits


class HubSet(NamedTuple):
    """A dataset on the hub."""

    repo: str
    config: str | None = None
    revision: str | None = None


HUB = {"tinystories": HubSet("roneneldan/TinyStories"), "openwebtext": HubSet("Skylion007/openwebtext")}


def parse(name: str) -> HubSet:
    """The dataset of a name; needs no network."""
    if name in HUB:
        return HUB[name]
    if found := NAMED.fullmatch(name):
        return HubSet(**found.groupdict())
    raise InputError(f"corpus {name!r} is not hub:OWNER/NAME, hub:OWNER/NAME:CONFIG or hub:OWNER/NAME@REVISION")


def streams(wanted: HubSet, column: str) -> dict[str, Iterator[str]]:
    """The texts of every split."""
    found = {ALIASES.get(split, split): split for split in _load(wanted)}
    if "train" not in found:
        raise InputError(f"dataset {wanted.repo} has no split 'train': it has {', '.join(found)}")
    return {split: _texts(wanted, theirs, column) for split, theirs in found.items()}


def _texts(wanted: HubSet, split: str, column: str) -> Iterator[str]:
    with _friendly(wanted.repo):
        for number, row in enumerate(_load(wanted)[split], start=1):
            yield as_text(row, column, f"dataset {wanted.repo}, {split} row {number}")


@cache
def _load(wanted: HubSet) -> dict[str, Any]:
    try:
        import datasets
        import huggingface_hub.utils.logging as hub_logging
    except ImportError as error:
        raise missing_extra(f"reading {wanted.repo} from the hub", "the package datasets", "data") from error
    # patience that a person can bear (the defaults wait for minutes), and no log lines between our own
    calm = datasets.config
    calm.STREAMING_READ_MAX_RETRIES = calm.STREAMING_OPEN_MAX_RETRIES = RETRIES
    calm.STREAMING_READ_RETRY_INTERVAL = calm.STREAMING_OPEN_RETRY_INTERVAL = WAIT
    datasets.logging.set_verbosity_error()
    hub_logging.set_verbosity_error()
    options = {"streaming": True, "revision": wanted.revision}
    with _friendly(wanted.repo):
        try:
            return dict(datasets.load_dataset(wanted.repo, wanted.config, **options))
        except RuntimeError as error:
            if "script" not in str(error):
                raise
            # an old dataset that is a program: the hub keeps a converted copy on a branch of its own
            options["revision"] = "refs/convert/parquet"
            return dict(datasets.load_dataset(wanted.repo, wanted.config, **options))


@contextmanager
def _friendly(repo: str) -> Iterator[None]:
    """Turn the errors of the hub's libraries into one sentence."""
    from datasets.exceptions import DatasetNotFoundError, DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    # the bases of the hub library's own error are the errors of whatever HTTP library it uses
    unreachable: tuple[type[BaseException], ...] = (OSError, *HfHubHTTPError.__bases__)
    try:
        yield
    except InputError:
        raise
    except DatasetNotFoundError as error:
        raise InputError(f"the hub has no public dataset {repo!r}: check the name") from error
    except (DatasetsError, ValueError, RuntimeError, *unreachable) as error:
        nowhere = "LocalEntryNotFound" in str(error)  # neither on the hub nor in the cache
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        if isinstance(error, DatasetsError | FileNotFoundError | ValueError | RuntimeError) and not nowhere:
            raise InputError(f"the hub's dataset {repo!r} cannot be read: {reason}") from error
        raise InputError(
            f"no connection to the hub while reading {repo!r} ({'no answer' if nowhere else reason}): check the "
            "network and try again"
        ) from error
