"""The pages of the reference that follow from the code: python -m docs.generate (make docs) writes them."""
