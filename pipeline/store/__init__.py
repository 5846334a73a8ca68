"""The OME-Zarr slide store: written once by ingest, read by everything else."""
