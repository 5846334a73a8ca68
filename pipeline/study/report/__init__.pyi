from .facts import Facts as Facts
from .facts import gather as gather
from .publish import Report as Report
from .publish import write_report as write_report
from .table import Table as Table
