"""Where a store's bytes are: in a folder or in a bucket."""
