"""The benchmark programs: fourteen kinds of work whose shapes change from call to call."""

from benchmarks.programs.basic import PROGRAMS as BASIC
from benchmarks.programs.irregular import PROGRAMS as IRREGULAR
from benchmarks.programs.language import PROGRAMS as LANGUAGE
from benchmarks.programs.program import Program
from benchmarks.programs.vision import PROGRAMS as VISION

PROGRAMS: dict[str, Program] = {p.name: p for p in (*BASIC, *LANGUAGE, *VISION, *IRREGULAR)}
