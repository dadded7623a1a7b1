"""What can be measured, a module each: `run` measures, `tables` says what came of it."""
