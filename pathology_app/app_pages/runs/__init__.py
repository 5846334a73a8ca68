"""The pages of runs: the list, one run, and the forms that start one."""
