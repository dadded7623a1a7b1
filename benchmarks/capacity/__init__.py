"""A simulation of the service's queue and batches, to plan for GPUs that were not measured."""
