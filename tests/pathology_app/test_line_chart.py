"""Curves as pictures."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree

import pytest

from pathology_app.line_chart import Curve, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def drawn(html: str) -> ElementTree.Element:
    found = re.search(r"base64,([^\"]+)", html)
    assert found
    return ElementTree.fromstring(base64.b64decode(found[1]))


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [-2.0, 5.0], [1e-9, 2e-9], [1e6, 3e9]])
def test_every_point_lies_in_the_picture(values: list[float]) -> None:
    svg = drawn(line_chart([Curve("a", list(enumerate(values)), "#123456")], label="L", x_name="step"))
    line = svg.find(f"{SVG}polyline")
    assert line is not None
    for point in line.attrib["points"].split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= 640
        assert 0 <= y <= 280
    assert 2 <= len(svg.findall(f"{SVG}text")) <= 20


def test_higher_is_higher_and_later_is_further_right() -> None:
    line = drawn(line_chart([Curve("a", [(0, 1), (1, 3)], "#123456")], label="L", x_name="s")).find(f"{SVG}polyline")
    assert line is not None
    (x0, y0), (x1, y1) = (map(float, point.split(",")) for point in line.attrib["points"].split())
    assert x1 > x0
    assert y1 < y0


def test_names_are_text() -> None:
    html = line_chart([Curve('<b onclick="x">', [(0, 1)], "#123456")], label='"><script>', x_name="<i>")
    assert "<b" not in html
    assert "<script" not in html
    assert "&lt;i&gt;" in base64.b64decode(re.search(r"base64,([^\"]+)", html)[1]).decode()  # type: ignore[index]


def test_no_points_are_no_chart() -> None:
    assert line_chart([Curve("a", [], "#123456")], label="L", x_name="s") == ""
