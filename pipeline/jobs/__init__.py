"""Work on many slides: what a stage is, the runner over a cohort, the pool of processes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
