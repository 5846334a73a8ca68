from .report import CaseReport as CaseReport
from .report import case_report as case_report
from .report import page_of as page_of
