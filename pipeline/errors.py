"""Errors a person reads, as the pipeline raises them; defined in `training.foundation.errors`."""

from training.foundation.errors import AmbiguousSeriesError as AmbiguousSeriesError
from training.foundation.errors import BadAnnotationError as BadAnnotationError
from training.foundation.errors import BadManifestError as BadManifestError
from training.foundation.errors import BadRecipeError as BadRecipeError
from training.foundation.errors import ChangedSourceError as ChangedSourceError
from training.foundation.errors import CorruptTileError as CorruptTileError
from training.foundation.errors import DamagedStoreError as DamagedStoreError
from training.foundation.errors import DecompressionBombError as DecompressionBombError
from training.foundation.errors import DiskFullError as DiskFullError
from training.foundation.errors import EmptyTableError as EmptyTableError
from training.foundation.errors import GemslideError as GemslideError
from training.foundation.errors import ImplausibleOutputError as ImplausibleOutputError
from training.foundation.errors import LeakageError as LeakageError
from training.foundation.errors import LockedError as LockedError
from training.foundation.errors import MissingMppError as MissingMppError
from training.foundation.errors import NoSlidesError as NoSlidesError
from training.foundation.errors import NotBrightfieldRgbError as NotBrightfieldRgbError
from training.foundation.errors import NoTissueError as NoTissueError
from training.foundation.errors import ProcessFailedError as ProcessFailedError
from training.foundation.errors import QcFailedError as QcFailedError
from training.foundation.errors import UnreadableError as UnreadableError
from training.foundation.errors import WrongSlideError as WrongSlideError
from training.foundation.errors import WrongWorldSizeError as WrongWorldSizeError
