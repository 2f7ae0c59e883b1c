"""Functions and gradients of the custom ops."""
