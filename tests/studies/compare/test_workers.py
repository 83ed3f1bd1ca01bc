"""Signals to a comparison: whoever gets them, all workers save and leave, and none stays behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sympformer.errors import InputError
from sympformer.studies.compare.workers import Workers

HERE = Path(__file__).parent


def wait_for(folder: Path, pattern: str, count: int, process: "subprocess.Popen[str] | None" = None) -> list[Path]:
    end = time.monotonic() + 60
    while len(found := sorted(folder.glob(pattern))) < count and time.monotonic() < end:
        assert process is None or process.poll() is None
        time.sleep(0.01)
    assert len(found) >= count, found
    return found


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"  # its parent was killed, and nobody has asked yet how it ended


CASES = [
    ("group", signal.SIGINT, 1, 130),
    ("group", signal.SIGINT, 2, 130),
    ("group", signal.SIGINT, 4, 130),
    ("parent", signal.SIGINT, 2, 130),
    ("parent", signal.SIGTERM, 2, 143),
    ("worker", signal.SIGINT, 2, 130),
    ("worker", signal.SIGTERM, 2, 130),
    ("worker", signal.SIGKILL, 2, 2),
    ("parent", signal.SIGKILL, 2, -9),
]


@pytest.mark.slow
@pytest.mark.parametrize(("to", "number", "jobs", "code"), CASES)
def test_all_workers_save_and_leave(to: str, number: int, jobs: int, code: int, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "slow_work.py"), str(tmp_path), str(jobs)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job may ignore it
    )
    try:
        pids = [int(path.read_text()) for path in wait_for(tmp_path, "pid-*", jobs, process)]
        if to == "group":
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid if to == "parent" else pids[0], number)
        _, said = process.communicate(timeout=30)
        assert process.returncode == code, said
        assert "Traceback" not in said
        killed = to == "worker" and number == signal.SIGKILL
        wait_for(tmp_path, "saved-*", jobs - killed)
        end = time.monotonic() + 30
        while not all(map(gone, pids)) and time.monotonic() < end:
            time.sleep(0.01)
        assert all(map(gone, pids))
        assert len(list(tmp_path.glob("pid-*"))) == jobs  # none of the waiting tasks began
        if killed:
            assert "a worker process was killed (SIGKILL)" in said
    finally:
        process.kill()
        process.wait()


def double(x: int) -> int:
    if x == 3:
        raise InputError("three is not allowed")
    return 2 * x


@pytest.mark.slow
def test_results_and_errors() -> None:
    with Workers(2) as workers:
        assert dict(workers.run(double, [(0,), (1,), (2,)])) == {0: 0, 1: 2, 2: 4}
        assert dict(workers.run(double, [])) == {}
        with pytest.raises(InputError, match="three is not allowed"):
            dict(workers.run(double, [(1,), (3,)]))
