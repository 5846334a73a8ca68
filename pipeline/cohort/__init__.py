"""Which slides belong together: manifest, split by patient, pseudonyms."""
