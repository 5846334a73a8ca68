"""Pointer positions on the slide that is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOOK = "window.__gemslide"


def on_screen(page: Page, x_px0: float, y_px0: float) -> tuple[float, float]:
    stage = page.locator(".marks").bounding_box()
    at = page.evaluate(f"{HOOK}.toScreen({x_px0}, {y_px0})")
    assert stage
    return stage["x"] + at["x"], stage["y"] + at["y"]


def click(page: Page, x_px0: float, y_px0: float, **how: Any) -> None:
    page.mouse.click(*on_screen(page, x_px0, y_px0), **how)


def drag(page: Page, *places_px0: tuple[float, float]) -> None:
    page.mouse.move(*on_screen(page, *places_px0[0]))
    page.mouse.down()
    for place in places_px0[1:]:
        page.mouse.move(*on_screen(page, *place), steps=4)
    page.mouse.up()
