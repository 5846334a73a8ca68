"""Tiles and tags that contradict each other give one image; and the attack notices a broken rule."""

from __future__ import annotations

from unittest import mock

from pipeline.slides.common.colours import FileColours
from tests.attacks import lying_colours


def test_one_picture_whatever_the_pyramid_and_the_route():
    result = lying_colours.attack(20, 3)

    assert (result.findings, result.attempts) == ([], 20)


def test_the_attack_finds_a_reader_that_follows_the_tag():
    with mock.patch.object(FileColours, "holds_rgb", lambda colours, header: colours.says_rgb):
        result = lying_colours.attack(6, 3)

    assert any("differs by up to" in finding for finding in result.findings)
    assert any("warned False, contradicts True" in finding for finding in result.findings)
