"""Programs on NVIDIA GPUs, through the driver alone: see :class:`.launch.Launched`."""
