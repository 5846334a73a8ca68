"""HTML that pages share: text shown as text, tables, curves and their styles."""
