from .export import Exported as Exported
from .export import export_study as export_study
from .keyed import PseudonymKey as PseudonymKey
from .keyed import open_pseudonym_key as open_pseudonym_key
from .scan import find_identifiers as find_identifiers
