"""A study's report: flow, quality, endpoints, failures, times, readers, versions; as a page, a PDF and tables."""

from training.foundation.lazy import public_names

__all__, __getattr__ = public_names(
    __name__,
    {
        "facts": "Facts gather",
        "publish": "Report write_report",
        "table": "Table",
    },
)
