"""Trainers as child processes: started, watched, stopped."""
