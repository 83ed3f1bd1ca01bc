"""Development's own measurements, beside those of `sympformer bench`: other sizes, a GPT by hand, padding, choices.

python -m benchmarks [sizes] [plain] [padding] [choices] [--rounds 15]      # from the root of a clone
"""

import argparse

from benchmarks.choices import bench_choices
from benchmarks.padding import bench_padding
from benchmarks.plain import bench_plain
from benchmarks.sizes import bench_sizes
from sympformer.studies.bench.bench import show

SUITES = {"sizes": bench_sizes, "plain": bench_plain, "padding": bench_padding, "choices": bench_choices}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Other measurements than `bench`'s.")
    parser.add_argument("suites", nargs="*", default=[], help=f"all by default: {', '.join(SUITES)}")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of interleaved timing")
    given = parser.parse_args()
    if unknown := set(given.suites) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    for suite in given.suites or SUITES:
        show(suite, SUITES[suite](given.rounds))
