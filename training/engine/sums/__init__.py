"""What a step adds up: gradients in a fixed order, and running statistics."""
