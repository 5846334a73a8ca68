"""Routes of saved registrations: shown, made from clicked points or from the tissue, removed."""
