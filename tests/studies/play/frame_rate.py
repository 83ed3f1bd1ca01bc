"""Frames a second of the playground in Chromium, and the time its script works on one: not a test, a measurement.

$ python -m tests.studies.play.frame_rate [particles]

Every system with the default scheme and with the dearest one, one step a frame, for three seconds each.
"""

import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sympformer.studies.play.page import SYSTEMS, play
from tests.browser import started, visits

SECONDS = 3


def main(particles: int) -> None:
    with TemporaryDirectory() as folder, started() as browser, visits(browser) as visit:
        file = Path(folder) / "play.html"
        play(file)
        print(f"Chromium {browser.version}, {particles} particles")
        print("system          scheme    frames/s   work a frame, median and 95 %, ms")
        for system in SYSTEMS:
            for scheme in ("etd_ab2", "rk4"):
                # small steps: nothing runs away meanwhile
                words = f"#system={system}&integrator={scheme}&n={particles}&h=0.005&h1=0.005&a1=0.1&a2=0.05&speed=60"
                page = visit(file, fragment=words).page
                page.click("#run")
                page.wait_for_timeout(500)  # the script warms up
                page.evaluate("Playground.timings.length = 0")
                page.wait_for_timeout(1000 * SECONDS)
                frames = page.evaluate("Playground.timings")
                work = sorted(work for _, work in frames)
                rate = 1000 * len(frames) / sum(passed for passed, _ in frames)
                high = work[int(0.95 * len(work))]
                print(f"{system:<15} {scheme:<9} {rate:8.1f}   {statistics.median(work):6.2f} {high:6.2f}")
                page.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 128)
