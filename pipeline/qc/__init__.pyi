from .check import check_quality as check_quality
from .stage import QcStage as QcStage
from .stain import fit_macenko as fit_macenko
from .stain import fit_reinhard as fit_reinhard
