"""Vendors' formats that only the OpenSlide library reads."""
