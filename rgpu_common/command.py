"""The `rgpu` command. It finds its sub-commands by entry point, so this package imports none.

An entry point of the group `rgpu.commands` has the sub-command's name and loads a `Command`.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from rgpu_common import ending, release, version_line
from rgpu_common.errors import RgpuError, UsageError
from rgpu_common.installing import install_words
from rgpu_common.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_DISTRIBUTION = "rgpu_cuda-"
GROUP = "rgpu.commands"
OK, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130
_COLUMNS = 80
# Dependencies that `rgpu run` does not need, so that a small image can do without them.
_LEFT_OUT = ("grpc", "google", "google.protobuf", "msgspec")
_ABOUT = "GPU programs on a machine without a GPU."
_UNKNOWN = "unrecognized arguments: "
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Command(NamedTuple):
    """A sub-command.

    summary: one line for the list of commands.
    configure: adds the arguments to a parser.
    run: does the work and returns the exit code. The message of an RgpuError goes to stderr.
    """

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class _Formatter(argparse.HelpFormatter):
    """Finds the terminal's width itself: argparse imports shutil for that, with each option."""

    def __init__(self, prog: str, width: int | None = None) -> None:
        super().__init__(prog, width=(width or _columns()) - 2)


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(1).columns or _COLUMNS
    except OSError:
        return _COLUMNS


class _Parser(argparse.ArgumentParser):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # As Python 3.14 has it: `--memory -1GiB` gives a value, which is refused by what it says.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def _get_formatter(self) -> argparse.HelpFormatter:
        return _Formatter(self.prog)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}{self._meant(message)}; see `{self.prog} --help`")

    def _meant(self, message: str) -> str:
        """Returns what an unknown option is called here, or a question if it is nearly a known one;
        else "".
        """
        if not message.startswith(_UNKNOWN):
            return ""
        from rgpu_common.help_pages import OPTIONS_HERE

        here = OPTIONS_HERE.get(self.prog, {})
        unknown = [word.partition("=")[0] for word in message.removeprefix(_UNKNOWN).split()]
        for word in unknown:
            if word in here:
                return f" ({here[word]})"
            meant = _meant(word, self._options()) if word.startswith("--") else ""
            if meant:
                return meant
        return ""

    def _options(self) -> list[str]:
        """Returns the options of this parser and of its sub-commands."""
        found = list(self._option_string_actions)
        for action in self._actions:
            for parser in action.choices.values() if isinstance(action.choices, dict) else ():
                found += parser._options() if isinstance(parser, _Parser) else []
        return found


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `rgpu` and returns its exit code. Errors are sentences on stderr, never tracebacks."""
    return _guarded("rgpu", _dispatch, argv)


def run_alone(
    name: str, about: str, commands: Mapping[str, Command], argv: Sequence[str] | None = None
) -> int:
    """Runs the program `name` with these commands and returns its exit code."""

    def dispatch(arguments: list[str]) -> int:
        parser = _Parser(prog=name, description=about, allow_abbrev=False)
        parser.add_argument("-V", "--version", action="version", version=f"{name} {release()}")
        verbs = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
        for command in commands.values():
            command.configure(verbs.add_parser(command.name, help=command.summary))
        parsed = parser.parse_args(arguments)
        return commands[parsed.command].run(parsed)

    return _guarded(name, dispatch, argv)


def _open_standard() -> None:
    """Opens /dev/null in place of each standard stream that is closed.

    Otherwise a later connection could get the stream's descriptor, and printed text would go to it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # open() returns the lowest free descriptor, which is the closed stream's.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def _guarded(name: str, dispatch: Callable[[list[str]], int], argv: Sequence[str] | None) -> int:
    _open_standard()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        code = dispatch(arguments)
        sys.stdout.flush()  # a failure here is reported; at the interpreter's end it would not be
        return code
    except RgpuError as error:
        return _complain(name, error, error.exit_code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        if error.name not in _LEFT_OUT:
            raise
        what = f"{error.name!r} is not installed, which this command needs"
        return _complain(name, RgpuError(f"{what}: {install_words()}"), FAILED)
    except BrokenPipeError:
        # The reader of the output has ended, so nothing more can be printed.
        _mute()
        return FAILED
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _mute()
        return _complain(name, RgpuError(f"the output cannot be written: {error.strerror}"), FAILED)


def _mute() -> None:
    """Sends stdout to /dev/null, so that flushing the buffered rest does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _meant(word: str, known: Iterable[str]) -> str:
    """Returns a question for a word that is nearly a known one; else ""."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _all_commands() -> dict[str, str]:
    """Returns where each command is, as MODULE:NAME. This reads every installed package."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUP)}


def _find(name: str) -> str | None:
    """Returns where a command is, as MODULE:NAME; None if there is no such command."""
    return _own_commands().get(name) or _all_commands().get(name)


def _own_commands() -> dict[str, str]:
    """Returns the commands of rgpu's own distribution, as the installer wrote them beside it.

    importlib.metadata takes 30 ms to import, more to read the other packages, and nearly all
    commands are rgpu's own. An installation of another form gives {}.
    """
    site = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        names = os.listdir(site)
        found = [n for n in names if n.startswith(_DISTRIBUTION) and n.endswith(".dist-info")]
        if len(found) != 1:
            return {}
        with open(os.path.join(site, found[0], "entry_points.txt"), encoding="utf-8") as file:
            lines = file.read().partition(f"[{GROUP}]\n")[2].partition("[")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_help(_all_commands())
        return OK if arguments else USAGE
    if arguments[0] == "help":
        return _help(_all_commands(), arguments[1:])
    if arguments[0] in ("-V", "--version"):
        print(version_line())
        return OK
    place = _find(arguments[0])
    if place is None:
        from rgpu_common.help_pages import CALLED_HERE

        here = CALLED_HERE.get(arguments[0])
        if here is not None:
            raise UsageError(f"there is no command {arguments[0]!r}; here it is {here}")
        meant = _meant(arguments[0], ("help", *_all_commands()))
        raise UsageError(
            f"there is no command {arguments[0]!r}{meant}; `rgpu --help` shows all of them"
        )
    command = _load(arguments[0], place)
    parsed = parser_of(command).parse_args(arguments[1:])
    ending.leave_in_order()
    return command.run(parsed)


def parser_of(command: Command) -> argparse.ArgumentParser:
    """Returns the parser of `rgpu COMMAND`."""
    parser = _Parser(prog=f"rgpu {command.name}", description=command.summary, allow_abbrev=False)
    command.configure(parser)
    return parser


def all_commands() -> list[Command]:
    """Returns all commands, sorted by name. This imports much."""
    return [_load(name, place) for name, place in sorted(_all_commands().items())]


def whole_parser() -> argparse.ArgumentParser:
    """Returns one parser of all commands, for man pages and completion.

    `main` does not use it: it loads the one command that it runs.
    """
    from rgpu_common.help_pages import TOPICS

    parser = _Parser(prog="rgpu", description=_ABOUT, allow_abbrev=False)
    parser.add_argument("-V", "--version", action="version", version=f"rgpu {release()}")
    commands = all_commands()
    verbs = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        command.configure(
            verbs.add_parser(command.name, help=command.summary, description=command.summary)
        )
    about = "print a page of the documentation, or a command's options"
    topics = verbs.add_parser("help", help=about, description=about)
    topics.add_argument(
        "topic", metavar="TOPIC", nargs="?", choices=[*TOPICS, *(one.name for one in commands)],
        help="a topic or a command; without it, both are listed",
    )  # fmt: skip
    return parser


def _help(found: Mapping[str, str], topics: Sequence[str]) -> int:
    """Carries out `rgpu help`, `rgpu help TOPIC` and `rgpu help COMMAND`."""
    import shutil

    from rgpu_common.help_pages import TOPICS, help_page

    if not topics or list(topics) in (["help"], ["--help"], ["-h"]):
        _print_help(found)
    elif len(topics) > 1:
        raise UsageError(f"`rgpu help` takes one topic, not {len(topics)}")
    elif topics[0] in TOPICS:
        _show(help_page(topics[0], min(shutil.get_terminal_size((100, 24)).columns, 100)))
    elif topics[0] in found:
        return _dispatch([topics[0], "--help"])
    else:
        meant = _meant(topics[0], [*TOPICS, *found])
        raise UsageError(
            f"there is no help about {topics[0]!r}{meant}; there are the topics "
            f"{', '.join(TOPICS)}, and the commands {', '.join(sorted(found))}"
        )
    return OK


def _show(text: str) -> None:
    """Prints a page, on a terminal with the user's pager."""
    if not sys.stdout.isatty():
        print(text)
        return
    from pydoc import pager  # imports much, which other commands do not need

    pager(text)


def _load(name: str, place: str) -> Command:
    module, _, attribute = place.partition(":")
    command = getattr(import_module(module), attribute, None)
    if not isinstance(command, Command):
        raise RgpuError(f"the entry point {name!r} of {GROUP} is not a command")
    return command


def _print_help(found: Mapping[str, str]) -> None:
    from rgpu_common.help_pages import TOPICS

    print(f"usage: rgpu COMMAND ...\n\n{_ABOUT}")
    width = max(map(len, found), default=0)
    for title, names in grouped(found).items():
        print(f"\n{title}:")
        for name in names:
            print(f"  {name:<{width}} {_load(name, found[name]).summary}")
    print("\ntopics of `rgpu help TOPIC`:")
    for topic, about in TOPICS.items():
        print(f"  {topic:<14} {about}")
    print(
        "\n`rgpu COMMAND --help` and `rgpu help TOPIC` say more; `rgpu --version` prints\n"
        "the version.  Begin with `rgpu demo`."
    )


def grouped(found: Iterable[str]) -> dict[str, list[str]]:
    """Returns the commands by who types them; those of other packages come last."""
    from rgpu_common.help_pages import GROUPS

    there = set(found)
    groups = {title: [one for one in names if one in there] for title, names in GROUPS.items()}
    rest = sorted(there - {name for names in GROUPS.values() for name in names})
    return {title: names for title, names in {**groups, "others": rest}.items() if names}


def _complain(name: str, error: Exception, code: int) -> int:
    sys.stdout.flush()
    # Sentences quote what others wrote, and a terminal would act on some characters.
    lines = map(one_line, str(error).split("\n"))
    print(f"{name}: {chr(10).join(lines)}", file=sys.stderr)
    return code
