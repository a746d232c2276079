"""gpu: programs for a GPU in a folder that is carried to one, with a script that times them beside torch and Triton."""
