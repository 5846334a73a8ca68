"""Work on untrusted input, bounded in time and memory: within a command, or in a process that can be killed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
