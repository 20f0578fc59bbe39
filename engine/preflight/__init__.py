"""Whether a pair of models will work here and fit, in words, from headers alone: before anything is loaded."""
