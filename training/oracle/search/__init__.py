"""Search of the plan that takes the least time within the memory of a rank."""
