"""The OME-Zarr slide store: written once by ingest, read by everything else.

from pipeline.store import Box, StoreReader
"""

from typing import TYPE_CHECKING

from training.foundation.lazy import lazy_names

if TYPE_CHECKING:
    from pipeline.box import Box
    from pipeline.store.reader import StoreReader, is_store

__all__ = ["Box", "StoreReader", "is_store"]
_MODULES = {"Box": "pipeline.box", "StoreReader": "pipeline.store.reader", "is_store": "pipeline.store.reader"}
__getattr__ = lazy_names(__name__, _MODULES)
