"""Starting a study's workers: on this machine, on a Dask cluster, as SLURM jobs."""
