"""Signing in, in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pathology_app.signed_in import PASSWORD

if TYPE_CHECKING:
    from playwright.sync_api import Page


def fill_and_sign_in(page: Page, name: str) -> None:
    """Fill in the form that is on the page, and send it."""
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
