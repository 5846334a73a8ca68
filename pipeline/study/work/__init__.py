"""Running a study: beginning and amending it, leasing its tasks to workers, and doing them."""
