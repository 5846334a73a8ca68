"""Features of tiles in the files of TRIDENT, CLAM and STAMP, both ways."""
