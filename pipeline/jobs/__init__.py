"""Work on many slides: what a stage is, the runner over a cohort, the pool of processes."""
