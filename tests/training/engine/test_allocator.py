import platform

import pytest

from training.engine.allocator import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_takes_effect_with_glibc():
    assert keep_freed_memory()


@pytest.mark.parametrize(("system", "libc"), [("Darwin", ""), ("Linux", "musl")])
def test_is_silent_elsewhere(monkeypatch, system, libc):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "libc_ver", lambda: (libc, ""))

    assert not keep_freed_memory()
