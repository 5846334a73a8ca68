"""Model-parallel training after GEMS: schedules as data, and the executor that runs them."""
