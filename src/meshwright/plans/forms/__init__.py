"""The short form and the long form of a plan, and the conversion between them."""
