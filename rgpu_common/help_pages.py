"""`rgpu help TOPIC`: shows pages of the documentation, which the package contains, as text."""

from __future__ import annotations

import re
from importlib.resources import files
from textwrap import TextWrapper
from typing import TYPE_CHECKING

from rgpu_common.errors import MissingPartError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Topic -> summary. CMakeLists.txt installs a file with the topic's name for each topic.
TOPICS = {
    "agent-node": "the agent of a GPU node of Kubernetes",
    "architecture": "the parts of rgpu, and how a call travels",
    "arrays": "CuPy on a remote GPU: `rgpu run --arrays`",
    "arrays-torch": "PyTorch on a remote GPU: `rgpu run --torch`",
    "client": "the client's commands and variables",
    "compatibility": "which programs run, which do not, and what to set",
    "containers": "rgpu in containers",
    "doctor": "what is wrong: `rgpu doctor` and its findings",
    "ci": "a tutorial: your CI without a GPU",
    "first-gpu": "a tutorial: your first remote GPU in five minutes",
    "three-people": "a tutorial: share one GPU between three people",
    "glossary": "one word for each thing",
    "jupyter": "what a cell of a notebook uses: `%load_ext rgpu_client`",
    "json": "what each command prints with --json",
    "kubernetes": "rgpu on Kubernetes",
    "manager": "the manager of a cluster: options, configuration, events and metrics",
    "migrating": "from other systems that share GPUs",
    "netprobe": "how paths are measured",
    "nvidia-smi": "nvitop, gpustat and `rgpu smi`: what NVML says in a lease",
    "observe": "rgpu top, logs, reports and metrics",
    "paths": "how a program's path to a server is chosen",
    "placement": "how a manager chooses a card, and how to read `rgpu explain`",
    "pytest": "tests of GPU code without a GPU: `pytest --rgpu-emulated`",
    "quotas": "how device time is shared, and how exactly",
    "quotas-memory": "how memory is charged",
    "quotas-tenants": "quotas of tenants, and what they lend each other",
    "security": "who is who, and what isolates tenants",
    "server": "the server's options and configuration",
    "several-devices": "programs that use several devices",
    "small-cluster": "a manager and a few GPU servers",
    "systemd": "a server under systemd",
    "transports": "the transports, and what each of them needs",
    "units": "sizes, shares and policies",
    "web-page": "a server or a cluster in a browser: `--web`",
}
# The commands by who types them, the first the most.
GROUPS = {
    "run programs": (
        "demo", "run", "ps", "logs", "attach", "wait", "cancel", "devices", "smi", "trace",
        "reserve", "release",
    ),
    "see and steer": (
        "top", "pool", "explain", "lease", "tenants", "quota", "drain", "undrain", "doctor",
        "probe",
    ),
    "serve": ("serve", "manager", "token", "tls"),
    "on Kubernetes": (
        "agent-node", "node-plugin", "device-plugin", "units-webhook", "legacy-controllers",
        "gate-watchdog",
    ),
}  # fmt: skip
# What other programs call what is meant, and what it is called here.
CALLED_HERE = {
    **dict.fromkeys(("kill", "stop", "rm", "delete", "scancel", "end"), "`rgpu cancel NAME`"),
    **dict.fromkeys(("queue", "squeue", "jobs", "list", "ls", "get"),
                    "`rgpu ps`, and `rgpu pool` for what a cluster has"),
    **dict.fromkeys(("submit", "sbatch", "srun", "salloc", "exec", "start", "create", "apply",
                     "job", "shell", "bash"),
                    "`rgpu run -- PROGRAM`, and `rgpu run --detach -- PROGRAM` in the background"),
    **dict.fromkeys(("status", "info", "health"),
                    "`rgpu ps` for what runs, `rgpu doctor` for what is wrong"),
    **dict.fromkeys(("nodes", "sinfo", "node", "cards", "gpus"), "`rgpu pool`, or `rgpu devices`"),
    **dict.fromkeys(("describe", "inspect", "why"), "`rgpu explain NAME`"),
    **dict.fromkeys(("nvidia-smi", "nvtop", "stats"), "`rgpu smi`, or `rgpu top` for all leases"),
    **dict.fromkeys(("sacct", "history"), "`rgpu ps --all`"),
    **dict.fromkeys(("monitor", "dashboard", "web", "ui"),
                    "`rgpu top`, or the page of a server (`rgpu help web-page`)"),
    **dict.fromkeys(("suspend", "hold", "pause"), "`rgpu lease pause NAME`"),
    **dict.fromkeys(("resume", "unpause"), "`rgpu lease resume NAME`"),
    **dict.fromkeys(("config", "configure"), "`rgpu help server`: it lists the keys of the file"),
    **dict.fromkeys(("up", "daemon"), "`rgpu serve`"),
    **dict.fromkeys(("down", "shutdown"), "`rgpu drain`, and then SIGTERM to the server"),
    **dict.fromkeys(("cordon",), "`rgpu drain`"),
    **dict.fromkeys(("uncordon",), "`rgpu undrain`"),
    **dict.fromkeys(("events", "log", "tail"), "`rgpu logs`, or `rgpu pool --events`"),
    **dict.fromkeys(("version",), "`rgpu --version`"),
    **dict.fromkeys(("login", "auth"), "`rgpu token new TENANT`, on the server"),
}  # fmt: skip
_NO_NODE = "RGPU_NODE names the program's own node, and --near and --local keep it there"
# The same for options of a command.
OPTIONS_HERE = {
    "rgpu run": {
        **dict.fromkeys(("-d", "--background"), "here it is --detach"),
        **dict.fromkeys(("-G", "--gpus", "--gres", "--gpus-per-node", "--num-gpus"),
                        "here it is --cards; --share says how much of each"),
        **dict.fromkeys(("-m", "--mem"), "here it is --memory, of the card"),
        **dict.fromkeys(("-n", "-J", "--job-name"), "here it is --name"),
        **dict.fromkeys(("-p", "--partition", "--queue"), "here it is --pool"),
        **dict.fromkeys(("-C", "--constraint"), "here it is --model"),
        **dict.fromkeys(("-w", "--node", "--nodelist", "--nodename"), _NO_NODE),
        **dict.fromkeys(("-t", "--time", "--timeout"),
                        "a run has no time limit: `rgpu run -- timeout 1h PROGRAM` ends it"),
        **dict.fromkeys(("-e", "--env"),
                        "the program has this environment: write A=B before `rgpu run`"),
        **dict.fromkeys(("-i", "-it", "-ti", "--tty", "--interactive"),
                        "the program has this terminal: leave it out"),
        **dict.fromkeys(("--rm",), "nothing is left of a run: leave it out"),
    },
    "rgpu smi": {
        "-L": "here it is `rgpu devices`",
        **dict.fromkeys(("-l", "--loop"), "here it is `rgpu top`"),
        **dict.fromkeys(("-q", "--query-gpu"), "here it is --json"),
    },
}  # fmt: skip
_FOLDER = "help"
# Images, and comments for those who run the pages' commands.
_NOT_TEXT = re.compile(r"!\[[^\]]*\]\([^)]*\)|<!--.*?-->")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"(\s*)([-*]|[0-9]+\.) ")
_CELLS = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"[\s|:-]+")


def help_page(topic: str, width: int) -> str:
    """Returns a topic's page for a terminal of `width` columns.

    Raises:
        MissingPartError: the installed package does not contain the page.
    """
    page = files("rgpu_common") / _FOLDER / f"{topic}.md"
    try:
        text = page.read_text(encoding="utf-8")
    except OSError:
        raise MissingPartError(
            f"the help page {topic!r} is not in this installation: install the package again"
        ) from None
    return plain_text(text, width)


def plain_text(markdown: str, width: int) -> str:
    """Returns Markdown as text. Paragraphs are wrapped; each row of a table becomes a paragraph."""
    lines: list[str] = []
    for block in _blocks(markdown):
        lines += [*_rendered(block, max(width, 40)), ""]
    return "\n".join(lines).strip("\n")


def _blocks(markdown: str) -> Iterator[list[str]]:
    """Yields the lines of each paragraph, list item, table or piece of code."""
    block: list[str] = []
    code = False
    for line in _NOT_TEXT.sub("", markdown).splitlines():
        if line.lstrip().startswith("```"):  # also inside a list
            code = not code
            if block:
                yield block
            block = ["```"] if code else []
            continue
        starts = not code and (not line.strip() or line.startswith("#") or _ITEM.match(line))
        if starts and block:
            yield block
            block = []
        if code or line.strip():
            block.append(line)
        if line.startswith("#") and not code:
            yield block
            block = []
    if block:
        yield block


def _rendered(block: list[str], width: int) -> list[str]:
    first = block[0]
    if first == "```":
        return [f"    {line}" for line in block[1:]]
    if first.startswith("#"):
        title = plain_words(first.lstrip("#"))
        return [title, ("=" if first.startswith("# ") else "-") * len(title)]
    if first.startswith("|"):
        return _table(block, width)
    item = _ITEM.match(first)
    hang = " " * len(item[0]) if item else ""
    text = " ".join(line.strip() for line in block)
    return TextWrapper(
        width,
        initial_indent=item[1] if item else "",
        subsequent_indent=hang,
        break_on_hyphens=False,
        break_long_words=False,
    ).wrap(plain_words(text))


def _table(block: list[str], width: int) -> list[str]:
    """Renders each row as its first cell, and below it the other cells, with columns' titles."""
    rows = [[plain_words(cell) for cell in _CELLS.split(line.strip())[1:-1]] for line in block]
    rows = [row for line, row in zip(block, rows, strict=True) if not _RULE.fullmatch(line)]
    titles, *body = rows
    lines = []
    for row in body:
        lines += TextWrapper(width, subsequent_indent="  ", break_long_words=False).wrap(row[0])
        for title, cell in zip(titles[1:], row[1:], strict=False):
            text = f"{title}: {cell}" if title and len(titles) > 2 else cell
            wrapper = TextWrapper(
                width, initial_indent="    ", subsequent_indent="      ",
                break_on_hyphens=False, break_long_words=False,
            )  # fmt: skip
            lines += wrapper.wrap(text)
    return lines


def plain_words(text: str) -> str:
    """Returns a line of Markdown as text, without addresses of links and marks for bold text."""
    return _LINK.sub(r"\1", text).replace("**", "").replace("\\|", "|").strip()
