"""Progress bars of the pipeline's stages; made in `training.foundation.progress`."""

from training.foundation.progress import Advance as Advance
from training.foundation.progress import bar as bar
from training.foundation.progress import no_bar as no_bar
