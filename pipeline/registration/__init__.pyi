from .register import TissueRegistration as TissueRegistration
from .register import register_slides as register_slides
from .transform import IDENTITY as IDENTITY
from .transform import Affine as Affine
from .transform import as_points as as_points
from .transform import distances as distances
from .transform import fit_affine as fit_affine
from .transform import fit_similarity as fit_similarity
