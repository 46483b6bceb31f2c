"""The native extension, compiled with plain gcc: no torch headers, a few seconds."""

from __future__ import annotations

import concurrent.futures
import glob
import os

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = os.path.join("pliant", "native")
RUNTIME = os.path.join("pliant", "runtime")
WARNINGS = ["-Wall", "-Wextra", "-Wno-missing-field-initializers"]
CATCHES = ("empty.cpp",)  # files that call C++ functions of libtorch, which may throw
FLAGS = {".c": ["-std=gnu11"], ".cpp": ["-std=c++20", "-fno-exceptions", "-fno-rtti"]}


class BuildExt(build_ext):
    """C and C++ files of one extension, each with the flags of its language, compiled side by side."""

    def build_extension(self, ext: Extension) -> None:
        compile_one = self.compiler._compile

        def with_flags(obj, src, suffix, cc_args, extra, pp_opts):
            catches = ["-fexceptions"] if os.path.basename(src) in CATCHES or os.path.dirname(src) == RUNTIME else []
            compile_one(obj, src, suffix, cc_args, [*extra, *FLAGS[suffix], *catches], pp_opts)

        compiler_compile = self.compiler.compile

        def compile_all(sources, output_dir=None, **kwargs):
            def one(source: str) -> list[str]:
                return compiler_compile([source], output_dir=output_dir, **kwargs)

            with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                return [obj for objs in pool.map(one, sources) for obj in objs]

        self.compiler._compile = with_flags
        self.compiler.compile = compile_all
        super().build_extension(ext)


def files(*patterns: str) -> list[str]:
    return sorted(path for room in (NATIVE, RUNTIME) for pattern in patterns for path in glob.glob(os.path.join(room, pattern)))


setup(
    ext_modules=[
        Extension(
            "pliant.native._core",
            sources=files("*.cpp", "*.c"),
            depends=files("*.h"),
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", *WARNINGS],  # -g0: debug information would be most of a wheel
            libraries=["dl", "pthread"],
            language="c++",
        )
    ],
    cmdclass={"build_ext": BuildExt},
)
