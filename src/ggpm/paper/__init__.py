"""The paper's experiments (section 4) as commands: ``ggpm reproduce triangle | simplex | annotation | labels | all``.

Every experiment is a function of its settings and a seed that returns rows (dictionaries); the same seed gives the
same rows, whatever the number of processes. Install with ``pip install "ggpm[experiments]"``.
"""
