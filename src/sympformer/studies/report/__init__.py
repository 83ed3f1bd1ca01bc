"""The report of a comparison: one HTML file that needs nothing else."""

from sympformer.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, {"write_report": "sympformer.studies.report.page"})
