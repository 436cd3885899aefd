"""What a run will take, before anything runs: tokens (`tokens.py`), memory (`memory.py`), the whole (`plan.py`)."""
