from .dataset import NO_PATIENT as NO_PATIENT
from .dataset import TileDataset as TileDataset
from .outdated import MOST_NAMED as MOST_NAMED
from .outdated import outdated_sets as outdated_sets
from .outdated import outdated_warning as outdated_warning
from .table import TileTable as TileTable
from .table import read_table as read_table
from .tile import make_tile_table as make_tile_table
