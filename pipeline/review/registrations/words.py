"""Registrations in plain words, for the command line and the side-by-side page."""

from __future__ import annotations

from pipeline.registration import Affine
from pipeline.review.registrations.registration import Registration


def describe_transform(in_um: Affine) -> str:
    """Turn, mirroring, scale and shift of a transform in µm: "turned by 12.3°, shifted by 1.20 mm right …"."""
    parts = ["mirrored left to right"] if in_um.is_mirrored else []
    parts.append(f"turned by {_degrees(in_um.degrees)}")
    if abs(in_um.scale - 1) >= 0.001:
        parts.append(f"{'enlarged' if in_um.scale > 1 else 'shrunk'} to {in_um.scale:.1%}")
    if in_um.shear >= 0.005:
        parts.append(f"stretched by {in_um.shear:.1%} along one direction")
    right, down = in_um.c / 1000, in_um.f / 1000
    across = f"{abs(right):.2f} mm {'right' if right >= 0 else 'left'}"
    along = f"{abs(down):.2f} mm {'down' if down >= 0 else 'up'}"
    return ", ".join([*parts, f"top left corner shifted by {across} and {along}"])


def describe_error(given: Registration) -> str:
    """The stated error, and the places that it comes from."""
    if given.method == "points":
        if given.error_um is None:
            return f"error unknown: {given.places} points determine the registration, click one more to learn it"
        return f"error {given.error_um:.0f} µm from {given.places} points"
    share = f", {given.share_near:.0%} of them agree" if given.share_near is not None else ""
    return f"error {given.error_um or 0.0:.0f} µm from {given.places} places{share}"


def _degrees(degrees: float) -> str:
    """Clockwise or counter-clockwise, whichever is less."""
    if degrees > 180:
        return f"{360 - degrees:.1f}° counter-clockwise"
    return f"{degrees:.1f}°" if degrees < 0.05 else f"{degrees:.1f}° clockwise"
