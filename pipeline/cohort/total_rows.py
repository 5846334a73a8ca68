"""The row of totals that people put below a spreadsheet, which is no slide."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_TOTALS_TEXT = """
total totals subtotal subtotals sum sums count average mean summe summen gesamt gesamtsumme insgesamt zwischensumme
anzahl mittelwert somme totaux moyenne suma totales promedio somma totale totali media totaal som summa yhteensä razem
итого всего сумма 合計 总计 總計 합계
"""
_TOTALS = frozenset(_TOTALS_TEXT.split())
_BESIDE_TEXT = """
grand general général overall all of the number no n slides slide patients patient cases case rows files images für
alle von der des de
"""
_BESIDE = frozenset(_BESIDE_TEXT.split())


def total_in(cells: Iterable[str]) -> str | None:
    """The cell that says that a row is one of totals ("Total", "Sum: 12", "Grand total (12 slides)"); None without."""
    return next((cell for cell in cells if _is_total(cell)), None)


def _is_total(cell: str) -> bool:
    words = re.findall(r"[^\W\d_]+", unicodedata.normalize("NFKC", cell).casefold())
    return not _TOTALS.isdisjoint(words) and _TOTALS.union(_BESIDE).issuperset(words)
