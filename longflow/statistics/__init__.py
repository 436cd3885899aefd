"""How sure a score is: intervals, paired differences, effective length.

Nothing here knows of engines, of configurations or of Snakemake. Importing the package is cheap; its modules import
numpy, and scipy where they need it.
"""
