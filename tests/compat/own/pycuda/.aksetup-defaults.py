# Settings of PyCUDA's build (its setup.py reads them from the home folder).
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O1", "-g0"]
