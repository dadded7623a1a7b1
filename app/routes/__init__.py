"""The endpoints, one file per family: parse, call the engine, shape the answer."""
