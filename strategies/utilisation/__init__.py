"""The terms of low-utilisation: by what is requested, and by what is measured."""
