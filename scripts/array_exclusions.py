"""What of CuPy's public functions a node does not execute, and why. Kept by hand.

EXCLUDED: public name -> reason. CHANGES: the parameters that a function changes in place, where it
is not `out`. TEXTS: parameters that may be text, and the texts. OWN: operations that are no public
function of CuPy: methods, indexing, sparse matrices, kernels.
"""

from __future__ import annotations

from typing import Any, Final

_FILE = "reads or writes files of the node"
_CODE = "takes a function of the client's; the client composes it of other operations"
_CLIENT = "answered in the client, without the node"
_POINTER = "takes a pointer, or an object that holds one"
_STATE = "changes the state of the process, not of an array"
_SYSTEM = "takes or returns an object of a system, not arrays"
_STRING = "returns text; the client makes it of the elements"
_ITERATOR = "reads an object of the client's; the client makes an array of it and uploads it"


def _all(reason: str, names: str, prefix: str = "") -> dict[str, str]:
    return {prefix + name: reason for name in names.split()}


EXCLUDED: Final[dict[str, str]] = {
    **_all(_FILE, "load save savez savez_compressed savetxt loadtxt genfromtxt fromfile"),
    **_all(_ITERATOR, "array asarray asanyarray asarray_chkfinite asfarray frombuffer fromiter"),
    **_all(_ITERATOR, "fromstring require asnumpy"),
    **_all(
        _CODE, "apply_along_axis apply_over_axes fromfunction piecewise mask_indices fuse memoize"
    ),
    **_all(_POINTER, "fromDlpack from_dlpack byte_bounds shares_memory may_share_memory"),
    **_all(
        _STATE, "set_printoptions printoptions get_printoptions set_string_function show_config"
    ),
    **_all(_STATE, "get_default_memory_pool get_default_pinned_memory_pool clear_memo disp who"),
    **_all("runs text as a program", "safe_eval"),
    **_all(
        _STRING, "array2string array_repr array_str base_repr binary_repr format_float_positional"
    ),
    **_all(_STRING, "format_float_scientific typename"),
    **_all(_CLIENT, "broadcast_shapes can_cast common_type find_common_type get_array_module"),
    **_all(
        _CLIENT, "get_array_wrap is_available iscomplexobj isdtype isfortran isrealobj isscalar"
    ),
    **_all(_CLIENT, "issctype issubclass_ issubdtype issubsctype iterable make_aligned_dtype"),
    **_all(_CLIENT, "min_scalar_type mintypecode ndim obj2sctype promote_types result_type"),
    **_all(
        _CLIENT, "sctype2char shape size ix_ broadcast_arrays real imag astype diag_indices_from"
    ),
    **_all(_CLIENT, "copy transpose reshape ravel squeeze swapaxes diagonal"),
    "random.bytes": "returns bytes; take random.integers",
    **_all(_STATE, "get_random_state reset_states set_random_state", "random."),
    **_all("page-locked memory of the node", "empty_like_pinned empty_pinned", "cupyx."),
    **_all("page-locked memory of the node", "zeros_like_pinned zeros_pinned", "cupyx."),
    **_all(_STATE, "allow_synchronize errstate get_runtime_info geterr seterr", "cupyx."),
    **_all(
        _CODE, "generic_filter generic_filter1d generic_gradient_magnitude", "cupyx.scipy.ndimage."
    ),
    **_all(_CODE, "generic_laplace labeled_comprehension", "cupyx.scipy.ndimage."),
    **_all("returns lists of slices", "find_objects value_indices", "cupyx.scipy.ndimage."),
    **_all(_CODE, "argrelextrema cwt band_stop_obj", "cupyx.scipy.signal."),
    **_all(
        _SYSTEM, "abcd_normalize bode cont2discrete dbode dfreqresp dimpulse", "cupyx.scipy.signal."
    ),
    **_all(_SYSTEM, "dlsim dstep freqresp group_delay impulse lsim step", "cupyx.scipy.signal."),
    **_all(_SYSTEM, "place_poles choose_conv_method", "cupyx.scipy.signal."),
    **_all(_CLIENT, "issparse isspmatrix isspmatrix_coo isspmatrix_csc", "cupyx.scipy.sparse."),
    **_all(_CLIENT, "isspmatrix_csr isspmatrix_dia get_index_dtype", "cupyx.scipy.sparse."),
    "cupyx.scipy.sparse.safely_cast_index_arrays": _CLIENT,
    **_all(_CODE, "aslinearoperator factorized", "cupyx.scipy.sparse.linalg."),
    **_all("returns an object of the node", "splu spilu", "cupyx.scipy.sparse.linalg."),
    "cupyx.scipy.fft.get_fft_plan": "a plan is an object of the node; the node keeps plans itself",
    "cupyx.scipy.spatial.distance.check_soft_dependencies": _CLIENT,
}

CHANGES: Final[dict[str, str]] = {
    **dict.fromkeys(("copyto",), "dst"),
    **dict.fromkeys(("put", "putmask", "fill_diagonal"), "a"),
    **dict.fromkeys(("place", "put_along_axis"), "arr"),
    **dict.fromkeys(("cupyx.scatter_add", "cupyx.scatter_max", "cupyx.scatter_min"), "a"),
    "random.shuffle": "a",
}

# Keywords of functions that take `**kwargs`.
MORE_KEYWORDS: Final[dict[str, str]] = {
    "pad": "constant_values end_values stat_length reflect_type",
    "meshgrid": "indexing sparse copy",
    "einsum": "dtype casting optimize out",
    "histogram": "",
    "random.rand": "dtype",
    "random.randn": "dtype",
    "cupyx.scipy.spatial.distance.cdist": "p",
    "cupyx.scipy.spatial.distance.pdist": "p",
}

_MODES = "raise wrap clip full same valid reflect constant nearest mirror grid-wrap grid-constant"
_PAD = "edge linear_ramp maximum mean median minimum symmetric empty line periodic smooth"
_METHODS = (
    "linear lower higher midpoint nearest inverted_cdf averaged_inverted_cdf weibull hazen "
    "closest_observation interpolated_inverted_cdf median_unbiased normal_unbiased auto direct "
    "fft pad gust cholesky svd eigh quadratic logarithmic hyperbolic homomorphic hilbert"
)
_WINDOWS = (
    "boxcar triang blackman hamming hann bartlett flattop parzen bohman blackmanharris nuttall "
    "barthann cosine exponential tukey taylor lanczos kaiser gaussian general_cosine "
    "general_gaussian general_hamming chebwin"
)
TEXTS: Final[dict[str, str]] = {
    "order": "C F A K fro nuc",
    "ord": "fro nuc inf -inf",
    "mode": f"{_MODES} {_PAD} interp reduced complete r raw economic",
    "casting": "no equiv safe same_kind unsafe",
    "kind": "quicksort mergesort heapsort stable ba",
    "side": "left right",
    "method": _METHODS,
    "interpolation": _METHODS,
    "norm": "backward ortho forward",
    "indexing": "xy ij",
    "bitorder": "big little",
    "UPLO": "L U",
    "trim": "fb f b",
    "boundary": "fill wrap symm zeros even odd constant",
    "btype": "low lowpass high highpass band bandpass bandstop pass stop lp hp bp bs",
    "ftype": "butter cheby1 cheby2 ellip bessel iir fir notch peak gammatone",
    "output": "ba zpk sos",
    "window": _WINDOWS,
    "detrend": "constant linear",
    "type": "linear constant",
    "scaling": "density spectrum psd",
    "padtype": "odd even constant",
    "pairing": "nearest keep_odd minimal",
    "rtype": "min max avg minimum maximum",
    "pass_zero": "bandpass lowpass highpass bandstop",
    "domain": "time freq",
    "use": "conv dot",
    "format": "csr csc coo dia",
    "which": "LM LA SA SM BE",
    "check_valid": "ignore warn raise",
    "nan_policy": "propagate",
    "callback_type": "pr_norm legacy",
    "return_singular_vectors": "u vh",
    "metric": "euclidean sqeuclidean cityblock chebyshev canberra correlation cosine hamming "
    "hellinger jensenshannon kl_divergence minkowski russellrao",
    "bins": "auto fd doane scott stone rice sturges sqrt",
    "scale": "sqrtn n",
    "trans": "N T C",
    "backend": "nvrtc nvcc",
    "reflect_type": "even odd",
    "optimize": "greedy optimal",
}


def _own(
    parameters: str, changes: str = "", keywords: str = "", rest: bool = False
) -> dict[str, Any]:
    row: dict[str, Any] = {"module": "rgpu", "parameters": parameters}
    more = {"keywords": keywords, "rest": rest, "changes": changes}
    return row | {key: value for key, value in more.items() if value}


_RANDOM_STATE: Final[dict[str, str]] = {
    "beta": "a b size dtype", "binomial": "n p size dtype", "chisquare": "df size dtype",
    "choice": "a size replace p", "dirichlet": "alpha size dtype",
    "exponential": "scale size dtype",
    "f": "dfnum dfden size dtype", "gamma": "shape scale size dtype", "geometric": "p size dtype",
    "gumbel": "loc scale size dtype", "hypergeometric": "ngood nbad nsample size dtype",
    "laplace": "loc scale size dtype", "logistic": "loc scale size dtype",
    "lognormal": "mean sigma size dtype", "logseries": "p size dtype",
    "multivariate_normal": "mean cov size check_valid tol method dtype",
    "negative_binomial": "n p size dtype", "noncentral_chisquare": "df nonc size dtype",
    "noncentral_f": "dfnum dfden nonc size dtype", "normal": "loc scale size dtype",
    "pareto": "a size dtype", "permutation": "a", "poisson": "lam size dtype",
    "power": "a size dtype", "randint": "low high size dtype", "random_sample": "size dtype",
    "rayleigh": "scale size dtype", "seed": "seed", "shuffle": "a", "standard_cauchy": "size dtype",
    "standard_exponential": "size dtype", "standard_gamma": "shape size dtype",
    "standard_normal": "size dtype", "standard_t": "df size dtype", "tomaxint": "size",
    "triangular": "left mode right size dtype", "uniform": "low high size dtype",
    "vonmises": "mu kappa size dtype", "wald": "mean scale size dtype", "weibull": "a size dtype",
    "zipf": "a size dtype",
}  # fmt: skip
_GENERATOR: Final[dict[str, str]] = {
    "beta": "a b size dtype", "binomial": "n p size", "chisquare": "df size dtype",
    "dirichlet": "alpha size", "exponential": "scale size", "f": "dfnum dfden size dtype",
    "gamma": "shape scale size", "geometric": "p size", "hypergeometric": "ngood nbad nsample size",
    "integers": "low high size dtype endpoint", "logseries": "p size", "poisson": "lam size",
    "power": "a size", "random": "size dtype out", "standard_exponential": "size dtype method out",
    "standard_gamma": "shape size dtype out", "standard_normal": "size dtype out",
    "uniform": "low high size dtype",
}  # fmt: skip

_SPARSE_METHODS: Final[dict[str, str]] = {
    "add": "a b", "subtract": "a b", "multiply": "a b", "divide": "a b", "matmul": "a b",
    "negative": "a", "absolute": "a", "power": "a n", "sum": "a axis dtype", "mean": "a axis dtype",
    "max": "a axis", "min": "a axis", "diagonal": "a k", "toarray": "a order",
    "convert": "a format", "transpose": "a", "astype": "a dtype", "copy": "a", "conj": "a",
    "getitem": "a index",
    "attribute": "a part", "setdiag": "a values k", "reshape": "a shape", "count_nonzero": "a axis",
    "equal": "a b", "maximum": "a b", "minimum": "a b", "nnz": "a",
    "sum_duplicates": "a", "eliminate_zeros": "a", "sort_indices": "a",
}  # fmt: skip
_SPARSE_CHANGES: Final = ("setdiag", "sum_duplicates", "eliminate_zeros", "sort_indices")

OWN: Final[dict[str, Any]] = {
    "rgpu.getitem": _own("a index"),
    "rgpu.setitem": _own("a index value", changes="a"),
    "rgpu.part": _own("a at"),
    "rgpu.copy": _own("a order"),
    "rgpu.astype": _own("a dtype order"),
    "rgpu.view": _own("a dtype"),
    "rgpu.reshape": _own("a shape order"),
    "rgpu.ravel": _own("a order"),
    "rgpu.transpose": _own("a axes"),
    "rgpu.squeeze": _own("a axis"),
    "rgpu.swapaxes": _own("a axis1 axis2"),
    "rgpu.diagonal": _own("a offset axis1 axis2"),
    "rgpu.real": _own("a"),
    "rgpu.imag": _own("a"),
    "rgpu.as_strided": _own("a shape strides"),
    "rgpu.sliding_window_view": _own("a window_shape axis"),
    "rgpu.fill": _own("a value", changes="a"),
    "rgpu.sort": _own("a axis", changes="a"),
    "rgpu.partition": _own("a kth axis", changes="a"),
    "rgpu.upload": _own("a data", changes="a"),
    "rgpu.ufunc_reduce": _own("name a axis dtype keepdims", keywords="out", changes="out"),
    "rgpu.ufunc_accumulate": _own("name a axis dtype", keywords="out", changes="out"),
    "rgpu.ufunc_outer": _own("name a b"),
    "rgpu.ufunc_at": _own("name a index b", changes="a"),
    "random.default_rng": _own("seed"),
    "random.RandomState": _own("seed"),
    **{
        f"random.RandomState.{name}": _own(
            f"state {parameters}", changes="a" if name == "shuffle" else ""
        )
        for name, parameters in _RANDOM_STATE.items()
    },
    **{
        f"random.Generator.{name}": _own(
            f"state {parameters}", changes="out" if "out" in parameters.split() else ""
        )
        for name, parameters in _GENERATOR.items()
    },
    "sparse.compressed": _own("format data indices indptr shape dtype"),
    "sparse.coordinates": _own("format data row col shape dtype"),
    "sparse.dense": _own("format a dtype"),
    "sparse.empty": _own("format shape dtype"),
    **{
        f"sparse.{name}": _own(parameters, changes="a" if name in _SPARSE_CHANGES else "")
        for name, parameters in _SPARSE_METHODS.items()
    },
    "kernel.compile": _own("source name options backend"),
    "kernel.launch": _own("kernel grid block args shared"),
}
