"""What a researcher runs: flows, benchmarks, scores, comparisons and their reports."""
