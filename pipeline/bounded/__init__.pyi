from .limits import Limits as Limits
from .limits import within as within
from .processes import BoundedProcesses as BoundedProcesses
