"""On-disk format of a slide store: arrays, shards, chunks, metadata, checksums."""
