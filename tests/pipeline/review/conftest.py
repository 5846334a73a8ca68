"""Ledgers on both databases, as the studies' tests have them."""

from tests.pipeline.study.conftest import ledger, postgres, url

__all__ = ["ledger", "postgres", "url"]
