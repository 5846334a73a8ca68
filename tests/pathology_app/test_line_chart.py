"""Curves as images."""

from __future__ import annotations

import base64
import re
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import pytest

from pathology_app.html.line_chart import HEIGHT, WIDTH, Curve, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def drawn(html: str) -> ElementTree.Element:
    image = re.search(r"base64,([^\"]+)", html)
    assert image
    return ElementTree.fromstring(base64.b64decode(image[1]))


def points(svg: ElementTree.Element, curve: int = 0) -> list[tuple[float, float]]:
    """Corners of a curve, in points from the image's top left corner."""
    path = svg.find(f".//{SVG}g[@id='curve-{curve}']/{SVG}path")
    assert path is not None
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.attrib["d"])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [-2.0, 5.0], [1e-9, 2e-9], [1e6, 3e9]])
def test_every_point_lies_in_the_image(values: list[float]) -> None:
    svg = drawn(line_chart([Curve("a", list(enumerate(values)), "#123456")], label="L", x_name="step"))
    assert svg.attrib["viewBox"] == f"0 0 {WIDTH} {HEIGHT}"
    for x, y in points(svg):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    assert 2 <= len(svg.findall(f".//{SVG}text")) <= 20


def test_higher_is_higher_and_later_is_further_right() -> None:
    (x0, y0), (x1, y1) = points(drawn(line_chart([Curve("a", [(0, 1), (1, 3)], "#123456")], label="L", x_name="s")))
    assert x1 > x0
    assert y1 < y0


def test_names_are_text() -> None:
    html = line_chart([Curve('<b onclick="x">', [(0, 1)], "#123456")], label='"><script>', x_name=r"<i> $\nosuch{$")
    assert "<b" not in html
    assert "<script" not in html
    assert r"<i> $\nosuch{$" in [text.text for text in drawn(html).iter(f"{SVG}text")]


def test_threads_draw_the_same_image() -> None:
    curves = [Curve("a", [(0, 1), (1, 3)], "#123456"), Curve("b", [(0, 2), (4, 1)], "#654321", "dots")]
    with ThreadPoolExecutor(4) as pool:
        images = set(pool.map(lambda _: line_chart(curves, label="L", x_name="step"), range(8)))
    assert len(images) == 1


def test_no_points_are_no_chart() -> None:
    assert line_chart([Curve("a", [], "#123456")], label="L", x_name="s") == ""
