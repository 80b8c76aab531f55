"""`fleet top`: the fleet on a full screen. `app` is the program, the rest is what it is made of."""
