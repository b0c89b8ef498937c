"""The compiled module. The rest is in setup.cfg, which has no way to say it; pyproject.toml has one
only together with all the metadata."""

from setuptools import Extension, setup

HOT_PATH = Extension(
    "zbroker.client.publisher._hot_path",
    ["zbroker/client/publisher/_hot_path.pyx"],
    extra_compile_args=["-g0"],
    optional=True,  # without a compiler pure_python.py does the same
)

setup(ext_modules=[HOT_PATH])
