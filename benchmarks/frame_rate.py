"""Frames a second of the playground in Chromium, and what one costs: not a test, a measurement.

$ python -m benchmarks.frame_rate [particles]

Every system with the default scheme and with the dearest one, 60 steps a second, for three seconds each. "CPU" is time
of the page's main thread (script, layout, painting commands) by its own clock: other programs do not count in it.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sympformer.studies.play.page import play
from tests.browser import started, visits

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession

SECONDS = 3
FRAMES = """(span) => new Promise((done) => {
  const begun = performance.now();
  let frames = 0;
  const tick = (now) => (now - begun < span ? (frames++, requestAnimationFrame(tick)) : done(frames));
  requestAnimationFrame(tick);
})"""


def spent(clock: "CDPSession") -> float:
    """Seconds that the main thread has worked."""
    return float({m["name"]: m["value"] for m in clock.send("Performance.getMetrics")["metrics"]}["TaskDuration"])


def main(particles: int) -> None:
    with TemporaryDirectory() as folder, started() as browser, visits(browser) as visit:
        file = Path(folder) / "play.html"
        play(file)
        print(f"Chromium {browser.version}, {particles} particles")
        print("system          scheme    frames/s   CPU ms a frame")
        for system in ("linear", "softmax_own", "softmax_paper", "quadratic", "stein"):
            for scheme in ("etd_ab2", "rk4"):
                # small steps: nothing runs away meanwhile
                words = f"#system={system}&integrator={scheme}&n={particles}&h=0.005&h1=0.005&a1=0.1&a2=0.05&speed=60"
                page = visit(file, fragment=words).page
                page.click("#run")
                page.wait_for_timeout(500)  # the script warms up
                clock = page.context.new_cdp_session(page)
                clock.send("Performance.enable", {"timeDomain": "threadTicks"})
                before = spent(clock)
                frames = page.evaluate(FRAMES, 1000 * SECONDS)
                cpu = 1000 * (spent(clock) - before) / frames
                print(f"{system:<15} {scheme:<9} {frames / SECONDS:8.1f}   {cpu:14.2f}")
                page.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 128)
