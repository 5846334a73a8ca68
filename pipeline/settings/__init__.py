"""Settings of a project (gemslide.toml) and of the installation."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
