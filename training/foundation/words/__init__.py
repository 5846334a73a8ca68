"""Words and names: of classes, of things that are counted, of what was misspelt."""
