"""The paper's reported figures, and the grids that rerun each of its tables."""
