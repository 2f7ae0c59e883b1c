"""Functions and gradients of the custom ops."""
"""Functions over the custom ops, and their gradients."""
