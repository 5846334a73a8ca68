"""Words and names: class names, nouns with their counts, misspelt words."""
