"""Export: a captured program as a file, and in the formats of other runtimes."""
