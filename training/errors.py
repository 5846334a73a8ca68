"""Errors a person reads, as training raises them; defined in `training.foundation.errors`."""

from training.foundation.errors import BadRecipeError as BadRecipeError
from training.foundation.errors import DecompressionBombError as DecompressionBombError
from training.foundation.errors import EmptyTableError as EmptyTableError
from training.foundation.errors import GemslideError as GemslideError
from training.foundation.errors import ImplausibleOutputError as ImplausibleOutputError
from training.foundation.errors import UnreadableError as UnreadableError
from training.foundation.errors import WrongWorldSizeError as WrongWorldSizeError
