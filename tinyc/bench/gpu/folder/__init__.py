"""The files that ``tinyc bench gpu`` copies beside the bundles. They run without tinyc, and so import nothing of it."""

FILES = ("bench.py", "run.py", "contestants.py", "programs.py", "triton_kernels.py")
