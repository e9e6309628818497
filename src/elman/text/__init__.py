"""From files to batches of numbers: readers, units, vocabularies, vectors, token stores."""
