"""What this machine is, and what its CPU really does.

Some virtual machines advertise AMX and do not let it run: the first product in bfloat16 then kills the process with
SIGILL, which no Python code can catch, and the CPU's own flags say that all is well. So bfloat16 is tried in a child
process, once, and the answer is kept in the cache folder. Where it dies, oneDNN (torch's kernels) is told to leave the
broken instructions out, by a variable that it reads at its first product: set it before that.

    machine.use_bfloat16()     # before anything is computed; sets the variable for this process and its children
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from sympformer.atomic import write_file
from sympformer.errors import InputError

VARIABLE = "ONEDNN_MAX_CPU_ISA"
LIMITS = ("AVX512_CORE_FP16", "AVX512_CORE_BF16", "AVX512_CORE", "AVX2")  # the first that works leaves out the least
PATIENCE = 60.0  # seconds for a trial
CPUINFO = Path("/proc/cpuinfo")
SUSPECT = {"amx_tile", "amx_bf16", "avx512_bf16"}  # without these, torch computes bfloat16 by plain instructions
NAMED = (  # the instruction sets that decide about speed, of x86 and ARM
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16",
    "asimd", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip
DEADLY = (signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE)  # of the CPU's doing, unlike SIGKILL

# products and attention, forward and backward; no core file is left behind
TRIAL = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import torch
from torch.nn import functional as F
torch.set_num_threads(1)
x = torch.randn(2, 2, 64, 64, dtype=torch.bfloat16, requires_grad=True)
y = F.scaled_dot_product_attention(F.linear(x, x[0, 0]), x, x, is_causal=True)
(y @ x).sum().backward()
"""


@dataclass(frozen=True)
class Bfloat16:
    """How bfloat16 does on this CPU. limit: the value of the variable with which it works."""

    state: Literal["works", "limited", "broken", "untried"]
    limit: str | None = None
    why: str = ""

    @property
    def sentence(self) -> str:
        """The answer in words."""
        return {
            "works": "works",
            "limited": f"works with {VARIABLE}={self.limit}",
            "broken": "broken: a product in bfloat16 kills the process, whatever oneDNN leaves out",
            "untried": "not tried",
        }[self.state] + (f" ({self.why})" if self.why else "")


def use_bfloat16(needed: bool = True, instead: str = "use float32") -> None:
    """Make bfloat16 work on this CPU, for this process and its children; call it before anything is computed.

    Where the variable has to be set, one line on stderr says so. Where nothing helps, an error says that; with
    needed=False (a model that may use bfloat16, or may not) that is left to fate. instead: what to do then.
    """
    found = bfloat16()
    if found.state == "broken" and needed:
        raise InputError(
            "bfloat16 does not run on this CPU: it dies of an illegal instruction, and no value of "
            f"{VARIABLE} helps; {instead}, or another machine"
        )
    if found.limit is not None and VARIABLE not in os.environ:
        os.environ[VARIABLE] = found.limit
        if os.environ.get("RANK", "0") == "0":  # one of several processes speaks for all
            print(
                f"sympformer: this CPU advertises instructions for bfloat16 that do not run: {VARIABLE}={found.limit}"
                " is set to do without them",
                file=sys.stderr,
            )


def bfloat16() -> Bfloat16:
    """How bfloat16 does here: as set by the user, as the flags tell, as an earlier trial found, or tried now."""
    if VARIABLE in os.environ:
        return Bfloat16("limited", os.environ[VARIABLE], "set in the environment")
    if not SUSPECT & flags():
        return Bfloat16("untried", why="this CPU has no instructions of its own for it that could fail")
    return _kept(cache_root() / f"bfloat16-{_identity()}.json")


@functools.cache
def _kept(file: Path) -> Bfloat16:
    """The answer in a file, or a new trial's. A file that does not read or cannot be written is no obstacle."""
    try:
        stored = Bfloat16(**json.loads(file.read_text(encoding="utf-8")))
        if stored.state in ("works", "limited", "broken") and (stored.state == "limited") == (stored.limit in LIMITS):
            return stored
    except (OSError, ValueError, TypeError):
        pass  # none yet, or damaged: try again
    found = probe([sys.executable, "-P", "-c", TRIAL])
    if found.state != "untried":
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, json.dumps(asdict(found)) + "\n")
        except OSError:
            pass  # tried again next time
    return found


def probe(command: list[str], patience: float = PATIENCE) -> Bfloat16:
    """Run a trial of bfloat16 in a child process: as it is, then with less and less for oneDNN to use."""
    plain, problem = _trial(command, None, patience)
    if plain == "passed":
        return Bfloat16("works")
    if plain == "unclear":
        return Bfloat16("untried", why=problem)
    for limit in LIMITS:
        if _trial(command, limit, patience)[0] == "passed":
            return Bfloat16("limited", limit)
    return Bfloat16("broken")


def _trial(command: list[str], limit: str | None, patience: float) -> tuple[Literal["passed", "died", "unclear"], str]:
    """How a child ended, and what was unclear about it."""
    environment = os.environ | ({} if limit is None else {VARIABLE: limit})
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return "unclear", f"a trial did not end within {patience:g} s"
    except OSError as error:
        return "unclear", f"a trial did not start: {error.strerror}"
    if done.returncode == 0:
        return "passed", ""
    if -done.returncode in DEADLY:
        return "died", ""
    said = "".join(f": {line}" for line in done.stderr.splitlines()[-1:])
    return "unclear", f"a trial ended with code {done.returncode}{said}"


def _identity() -> str:
    """CPU, flags, torch and the trial itself: what an answer holds for, on whatever host, after whatever boot."""
    parts = [processor(), " ".join(sorted(flags())), _torch_version(), TRIAL]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _torch_version() -> str:
    """The installed torch's version, without importing it."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def cache_root() -> Path:
    """What is kept for later: $SYMPFORMER_CACHE, or sympformer in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SYMPFORMER_CACHE") or Path(home) / "sympformer")


# --- what there is


def facts() -> dict[str, Any]:
    """What figures depend on; goes into every file of results."""
    import torch

    return {
        "processor": processor(),
        "instruction_sets": [name for name in NAMED if name in flags()],
        "onednn_limit": os.environ.get(VARIABLE),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "memory_gb": _memory_gb(),
        "accelerator": _accelerator(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }


def headline() -> str:
    """The machine in one line, for the head of a table."""
    here = facts()
    sets = f" ({', '.join(here['instruction_sets'])})" if here["instruction_sets"] else ""
    return f"{here['processor']}{sets}, {here['threads']} threads, torch {here['torch']}"


def report() -> str:
    """The machine as a page: what there is, and what is broken."""
    rows = {name.replace("_", " "): value for name, value in facts().items()} | {"bfloat16": bfloat16().sentence}
    rows["instruction sets"] = ", ".join(rows["instruction sets"])
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {'none' if value in (None, '') else value}" for name, value in rows.items())


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The processor's name; platform.processor() is empty on Linux."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def flags() -> set[str]:
    """What the CPU says that it can do; empty where the system does not tell (only Linux does)."""
    return set((_cpuinfo("flags") or _cpuinfo("Features")).split())


def _cpuinfo(key: str) -> str:
    """The first line of a name in /proc/cpuinfo; empty where there is none."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return ""  # not Linux
    return next((line.split(":", 1)[1].strip() for line in lines if line.split(":")[0].strip() == key), "")


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None  # Windows


def _accelerator() -> str | None:
    """The name of what torch can compute on besides the CPU."""
    import torch

    if torch.cuda.is_available():
        return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    return str(found) if (found := torch.accelerator.current_accelerator(check_available=True)) else None
