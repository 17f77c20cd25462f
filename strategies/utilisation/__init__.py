"""What low-utilisation is made of: its options, and its terms by what is requested and by what is measured."""
