"""What users may ask, composed by chance, all our own."""
