"""Ledgers on both databases, as in the tests of studies."""

from tests.pipeline.study.conftest import ledger, postgres, url

__all__ = ["ledger", "postgres", "url"]
