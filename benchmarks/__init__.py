"""Programs and patterns that measure compilers on changing shapes. Ratios taken in one run; nothing here is a test."""
