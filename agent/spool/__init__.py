"""Finished work on disk until the coordinator has it."""
