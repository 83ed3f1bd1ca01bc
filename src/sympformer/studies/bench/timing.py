"""What work costs, measured so that a noisy machine cannot fake it: interleaved seconds, bytes in a fresh process."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from sympformer.errors import InputError
from sympformer.progress import steps_with_progress

Work = Callable[[], object]
# every tensor gets pages of its own and gives them back at once: the peak is that of live tensors
OWN_PAGES = {"MALLOC_MMAP_THRESHOLD_": "65536"}


@dataclass(frozen=True)
class PreparedWork:
    """A work that needs something made first, every time, that must not be timed."""

    prepare: Callable[[], Any]
    run: Callable[[Any], object]


def interleaved(
    works: Mapping[str, Work | PreparedWork],
    rounds: int,
    warm_up: int = 2,
    label: str = "timing",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every work in every round. A round runs each once, so that a slow minute hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for i in steps_with_progress(warm_up + rounds, label):
        for name, work in works.items():
            made = work.prepare() if isinstance(work, PreparedWork) else None
            _wait()
            started = clock()
            work.run(made) if isinstance(work, PreparedWork) else work()
            _wait()
            elapsed = clock() - started
            if i >= warm_up:
                seconds[name].append(elapsed)
    return seconds


def ratio(seconds: Mapping[str, list[float]], name: str, reference: str) -> float:
    """Median over rounds of the time of `name` by the time of `reference` in the same round."""
    return statistics.median(a / b for a, b in zip(seconds[name], seconds[reference], strict=True))


def in_fresh_process(function: str, *arguments: Any) -> Any:
    """What `module:function` returns when a process of its own calls it; arguments and result are JSON."""
    code = "import sys; from sympformer.studies.bench.timing import answer; answer(*sys.argv[1:])"
    command = [sys.executable, "-c", code, function, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | OWN_PAGES)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise InputError(f"the process that measures {function} failed ({said[-1]}): try a smaller model or batch")
    return json.loads(done.stdout.splitlines()[-1])


def answer(function: str, arguments: str) -> None:
    """The child's side of `in_fresh_process`."""
    from importlib import import_module

    module, _, name = function.partition(":")
    print(json.dumps(getattr(import_module(module), name)(*json.loads(arguments))))


def high_water() -> int:
    """Peak resident bytes of this process. Linux: its own; ru_maxrss would count the parent's from before the exec."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _wait() -> None:
    """For a GPU that still works."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
