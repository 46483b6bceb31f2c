"""The command line: what it refuses, what it hands on."""

from __future__ import annotations

import sys
import types

import pytest

from pliant.cli import main as cli
from pliant.errors import PliantError


@pytest.fixture
def greet(monkeypatch):
    """A subcommand `greet` whose module is made here; returns what its `run` was called with."""
    seen = []
    module = types.ModuleType("greet_command")
    module.add_arguments = lambda parser: parser.add_argument("--times", type=int, default=1)
    module.run = lambda args: seen.append(args.times) or 7
    module.seen = seen
    monkeypatch.setitem(sys.modules, "greet_command", module)
    monkeypatch.setitem(cli.COMMANDS, "greet", ("greet_command", "say hello"))
    return module


def test_no_command_prints_usage_and_fails(capsys):
    assert cli.main([]) == 2
    assert "demo" in capsys.readouterr().out


def test_help_succeeds_and_names_every_command(capsys, greet):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out and summary in out for name, (_, summary) in cli.COMMANDS.items())


def test_unknown_command_is_named(capsys):
    assert cli.main(["dmeo"]) == 2
    captured = capsys.readouterr()
    assert "'dmeo'" in captured.err and captured.out == ""


def test_arguments_and_exit_status_pass_through(greet):
    assert cli.main(["greet", "--times", "3"]) == 7
    assert greet.seen == [3]


def test_wrong_option_exits_with_2(greet):
    with pytest.raises(SystemExit) as stop:
        cli.main(["greet", "--tmies", "3"])
    assert stop.value.code == 2


def test_our_errors_are_one_line_not_a_traceback(greet, capsys):
    def fail(_):
        raise PliantError("the fix is to do this")

    greet.run = fail
    assert cli.main(["greet"]) == 1
    assert capsys.readouterr().err == "pliant: the fix is to do this\n"


def test_other_errors_are_not_hidden(greet):
    def fail(_):
        raise ZeroDivisionError

    greet.run = fail
    with pytest.raises(ZeroDivisionError):
        cli.main(["greet"])
