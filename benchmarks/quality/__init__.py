"""How well the scheduler packs GPUs: the experiment of FGD on openb, and gangs in a topology."""
