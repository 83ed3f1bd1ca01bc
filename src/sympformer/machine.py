"""What this machine is, and one weakness of some: virtual machines that advertise AMX and do not let it run.

The first product in bfloat16 then kills the process with SIGILL, which no Python code can catch, and the CPU's own
flags say that all is well. oneDNN (torch's kernels) leaves AMX out if a variable tells it to before its first product.
"""

import os
import platform
import sys
from pathlib import Path
from typing import Any

VARIABLE = "ONEDNN_MAX_CPU_ISA"
CPUINFO = Path("/proc/cpuinfo")
NAMED = (  # the instruction sets that decide about speed, of x86 and ARM
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_fp16",
    "asimd", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip


def calm_onednn() -> None:
    """On a virtual machine with AMX, have oneDNN do without it, in this process and its children, and say so.

    Nothing that float32 uses is left out. What the user has set stays.
    """
    found = flags()
    if VARIABLE in os.environ or "hypervisor" not in found or not any(flag.startswith("amx") for flag in found):
        return
    os.environ[VARIABLE] = "AVX512_CORE_BF16" if "avx512_bf16" in found else "AVX512_CORE"
    if os.environ.get("RANK", "0") == "0":  # one of several processes speaks for all
        print(
            "sympformer: AMX kills the process on some virtual machines: "
            f"{VARIABLE}={os.environ[VARIABLE]} does without it; where AMX works, {VARIABLE}=DEFAULT lifts that",
            file=sys.stderr,
        )


def cache_root() -> Path:
    """What is kept for later: $SYMPFORMER_CACHE, or sympformer in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SYMPFORMER_CACHE") or Path(home) / "sympformer")


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
    """The machine as a page."""
    rows = {name.replace("_", " "): value for name, value in facts().items()}
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
