"""Clinical studies: a frozen protocol, a ledger of every slide and stage, workers that pull tasks, a log as proof."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
