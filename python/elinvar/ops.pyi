# Written by tools/stubs.py from the operators' descriptions.
"""Every operator of the library as a function, made of its description."""

from typing import Any, Literal, Sequence

from elinvar._elinvar import DType, Executor, Tensor

def abs(x: Tensor) -> Tensor:
    """The magnitude; the least integer is its own.

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def add(a: Tensor, b: Tensor) -> Tensor:
    """`a + b`; integers wrap.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def add_rms_norm(a: Tensor, b: Tensor, weight: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-05) -> tuple[Tensor, ...]:
    """sum = a + b and its rms_norm

    Inputs:
        a (float32, float16, bfloat16): […]
        b (float32, float16, bfloat16): as a
        weight (float32, float16, bfloat16; optional): the shape of x from axis on; 1 where absent

    Returns:
        sum (float32, float16, bfloat16): as a
        y (float32, float16, bfloat16): as a

    Attributes:
        axis (int): As `RmsNorm::axis`.
        epsilon (float): As `RmsNorm::epsilon`.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def arange(*, start: float = 0.0, limit: float, step: float = 1.0, dtype: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType = 'float32', executor: Executor) -> Tensor:
    """start, start + step, ... up to but not including limit

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): [ceil((limit - start) / step)]

    Attributes:
        start (float): The first value.
        limit (float): Where the values end; it is not one of them.
        step (float): The distance; negative counts down.
        dtype (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): The type.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def argmax(x: Tensor, *, axis: int | None = None, keepdims: bool = True, select_last_index: bool = False, dtype: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType = 'int64') -> Tensor:
    """index of the largest element along an axis

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): […]

    Returns:
        index (int64, int32, uint32): the shape of x without the axis, or 1 there

    Attributes:
        axis (int): The axis, negative counting from the end; `None` for the index in row-major order over the whole tensor.
        keepdims (bool): Keep the reduced axes, with extents of one.
        select_last_index (bool): Of equal elements take the last.
        dtype (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the index: i64, i32 or u32.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def argmin(x: Tensor, *, axis: int | None = None, keepdims: bool = True, select_last_index: bool = False, dtype: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType = 'int64') -> Tensor:
    """index of the smallest element along an axis

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): […]

    Returns:
        index (int64, int32, uint32): the shape of x without the axis, or 1 there

    Attributes:
        axis (int): The axis, negative counting from the end; `None` for the index in row-major order over the whole tensor.
        keepdims (bool): Keep the reduced axes, with extents of one.
        select_last_index (bool): Of equal elements take the last.
        dtype (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the index: i64, i32 or u32.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, lengths: Tensor | None = None, *, scale: float | None = None, softcap: float = 0.0, causal: bool = False, offset: int = 0, left_window: int | None = None, right_window: int | None = None, tokens_first: bool = False, precision: Literal["strict", "invariant", "fast"] | None = None, output: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType | None = None) -> Tensor:
    """softmax(softcap(scale q k^T) + mask) v over the keys each query attends; grouped heads, causal, windows, caches

    Inputs:
        q (float32, float16, bfloat16): [B, Hq, Tq, D]
        k (float32, float16, bfloat16, uint8): [B, Hkv, Tk, D], of q's type or any beside an f32 q; u8: rows packed in Q8_0
        v (float32, float16, bfloat16, uint8): [B, Hkv, Tk, Dv], of k's type
        mask (bool, float32, float16, bfloat16; optional): broadcast to [B, Hq, Tq, Tk]; bool: true attends; float: added to the scores
        positions (int32; optional): [Tq] or [B, Tq]: where each query stands among the keys
        lengths (int32; optional): [B]: how many of the Tk keys each sequence has

    Returns:
        y (float32, float16, bfloat16): [B, Hq, Tq, Dv], or [B, Tq, Hq, Dv], of type output

    Attributes:
        scale (float): Factor of the dot product; `None` for `1 / √D`.
        softcap (float): `s` becomes `c · tanh(s / c)`; zero for none.
        causal (bool): Attend no key after the query's position.
        offset (int): Position of query 0 where no positions are given.
        left_window (count): Attend at most this many keys before the query's position (a sliding window of `w` tokens is `w − 1`); `None` for all.
        right_window (count): Attend at most this many keys after it; `None` for all.
        tokens_first (bool): Give `[B, Tq, Hq, Dv]`: token by token, as the projection that follows reads it.
        precision (word: strict, invariant, fast): How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order). None is the executor's.
        output (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the output; that of `q` if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def attention_gradient(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, lengths: Tensor | None = None, y: Tensor = ..., dy: Tensor = ..., *, scale: float | None = None, softcap: float = 0.0, causal: bool = False, offset: int = 0, left_window: int | None = None, right_window: int | None = None, tokens_first: bool = False, precision: Literal["strict", "invariant", "fast"] | None = None) -> tuple[Tensor, ...]:
    """the gradients of attention's queries, keys and values

    Inputs:
        q (float32, float16, bfloat16): [B, Hq, Tq, D]
        k (float32, float16, bfloat16): [B, Hkv, Tk, D], of q's type or any beside an f32 q
        v (float32, float16, bfloat16): [B, Hkv, Tk, Dv], of k's type
        mask (bool, float32, float16, bfloat16; optional): broadcast to [B, Hq, Tq, Tk]; bool: true attends; float: added to the scores
        positions (int32; optional): [Tq] or [B, Tq]: where each query stands among the keys
        lengths (int32; optional): [B]: how many of the Tk keys each sequence has
        y (float32, float16, bfloat16): what attention gave
        dy (float32, float16, bfloat16): its gradient, of y's shape

    Returns:
        dq (float32, float16, bfloat16): as q
        dk (float32, float16, bfloat16): as k
        dv (float32, float16, bfloat16): as v

    Attributes:
        scale (float): Factor of the dot product; `None` for `1 / √D`.
        softcap (float): `s` becomes `c · tanh(s / c)`; zero for none.
        causal (bool): Attend no key after the query's position.
        offset (int): Position of query 0 where no positions are given.
        left_window (count): Attend at most this many keys before the query's position (a sliding window of `w` tokens is `w − 1`); `None` for all.
        right_window (count): Attend at most this many keys after it; `None` for all.
        tokens_first (bool): `y` and `dy` are `[B, Tq, Hq, Dv]`.
        precision (word: strict, invariant, fast): How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order). None is the executor's.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def attention_scores(q: Tensor, k: Tensor, mask: Tensor | None = None, positions: Tensor | None = None, lengths: Tensor | None = None, *, scale: float | None = None, softcap: float = 0.0, causal: bool = False, offset: int = 0, left_window: int | None = None, right_window: int | None = None, softmax: bool = False) -> Tensor:
    """softcap(scale q k^T) + mask, -inf where a key is not attended; or the softmax of it

    Inputs:
        q (float32, float16, bfloat16): [B, Hq, Tq, D]
        k (float32, float16, bfloat16): [B, Hkv, Tk, D], of q's type or any beside an f32 q
        mask (bool, float32, float16, bfloat16; optional): broadcast to [B, Hq, Tq, Tk]; bool: true attends; float: added to the scores
        positions (int32; optional): [Tq] or [B, Tq]: where each query stands among the keys
        lengths (int32; optional): [B]: how many of the Tk keys each sequence has

    Returns:
        y (float32, float16, bfloat16): [B, Hq, Tq, Tk], of q's type

    Attributes:
        scale (float): Factor of the dot product; `None` for `1 / √D`.
        softcap (float): `s` becomes `c · tanh(s / c)`; zero for none.
        causal (bool): Attend no key after the query's position.
        offset (int): Position of query 0 where no positions are given.
        left_window (count): Attend at most this many keys before the query's position (a sliding window of `w` tokens is `w − 1`); `None` for all.
        right_window (count): Attend at most this many keys after it; `None` for all.
        softmax (bool): Give the softmax of each row.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def bitwise_and(a: Tensor, b: Tensor) -> Tensor:
    """Bits that both have.

    Inputs:
        a (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def bitwise_count(x: Tensor) -> Tensor:
    """How many bits are one.

    Inputs:
        x (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape

    Returns:
        y (int8, int16, int32, int64, uint8, uint16, uint32, uint64): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def bitwise_not(x: Tensor) -> Tensor:
    """Every bit inverted; of a bool its opposite.

    Inputs:
        x (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape

    Returns:
        y (int8, int16, int32, int64, uint8, uint16, uint32, uint64): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def bitwise_or(a: Tensor, b: Tensor) -> Tensor:
    """Bits that either has.

    Inputs:
        a (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def bitwise_xor(a: Tensor, b: Tensor) -> Tensor:
    """Bits that differ.

    Inputs:
        a (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def cast(x: Tensor, *, to: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType) -> Tensor:
    """conversion to another data type: to nearest even, towards zero and saturating, low bits, or not zero

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): as x, of type to

    Attributes:
        to (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): The type.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def ceil(x: Tensor) -> Tensor:
    """Rounded up to a whole number.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def clamp(x: Tensor, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """min(max(x, min), max), broadcast

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        min (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64; optional): lower bounds, of any shape that broadcasts with x
        max (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64; optional): upper bounds, alike

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape all broadcast to

    Attributes:
        min (float): The lower bound, where there is no tensor of them.
        max (float): The upper bound, where there is no tensor of them.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def concat(*x: Tensor, axis: int = 0) -> Tensor:
    """tensors one after the other along an axis

    Inputs:
        x... (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): shapes that are equal but along the axis, all of one type

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): row-major

    Attributes:
        axis (int): The axis; negative counts from the end.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def copy(x: Tensor) -> Tensor:
    """x, row-major

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): row-major

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def cos(x: Tensor) -> Tensor:
    """The cosine of `a` radians.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def cross_entropy(logits: Tensor, targets: Tensor, *, ignore_index: int | None = None, statistics: bool = False, reduction: Literal["none", "mean", "sum"] = 'none') -> Any:
    """minus the logarithm of the softmax of each row, at the class it should have

    Inputs:
        logits (float32, float16, bfloat16): […, classes]
        targets (int32, int64, uint32): […], the class of each row; negative ones count from the end

    Returns:
        loss (float32): […], or [] where it is reduced
        max (float32; optional): with statistics: […], the largest logit
        sum (float32; optional): with statistics: […], the sum of exp(logits - max)

    Attributes:
        ignore_index (int): The target of rows that do not count.
        statistics (bool): Also give `m` and `Σ e` of each row, with which the gradient looks at a row once.
        reduction (word: none, mean, sum): What becomes of the rows' losses.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def cross_entropy_gradient(logits: Tensor, targets: Tensor, dloss: Tensor, max: Tensor | None = None, sum: Tensor | None = None, *, ignore_index: int | None = None) -> Any:
    """the gradient of cross_entropy by its logits

    Inputs:
        logits (float32, float16, bfloat16): […, classes]
        targets (int32, int64, uint32): […], the class of each row; negative ones count from the end
        dloss (float32): […], the gradient of each loss
        max (float32; optional): […], of the statistics of cross_entropy: both or none
        sum (float32; optional): […], of the statistics of cross_entropy

    Returns:
        dlogits (float32, float16, bfloat16): as logits
        loss (float32; optional): of cross_entropy_with_gradient: […]

    Attributes:
        ignore_index (int): As `CrossEntropy::ignore_index`.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def cross_entropy_with_gradient(logits: Tensor, targets: Tensor, dloss: Tensor, max: Tensor | None = None, sum: Tensor | None = None, *, ignore_index: int | None = None) -> Any:
    """the gradient of cross_entropy by its logits, and the losses

    Inputs:
        logits (float32, float16, bfloat16): […, classes]
        targets (int32, int64, uint32): […], the class of each row; negative ones count from the end
        dloss (float32): […], the gradient of each loss
        max (float32; optional): […], of the statistics of cross_entropy: both or none
        sum (float32; optional): […], of the statistics of cross_entropy

    Returns:
        dlogits (float32, float16, bfloat16): as logits
        loss (float32; optional): of cross_entropy_with_gradient: […]

    Attributes:
        ignore_index (int): As `CrossEntropy::ignore_index`.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def cumsum(x: Tensor, *, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """cumulative sum along an axis

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): […], any shape with at least one axis

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): as x

    Attributes:
        axis (int): The axis; negative counts from the end.
        exclusive (bool): Leave each element itself out of its sum.
        reverse (bool): Sum from the end.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def decode_attention(cache: Tensor, rows: Tensor, positions: Tensor, frequencies: Tensor, value_cache: Tensor, values: Tensor, queries: Tensor, *, scale: float | None = None, softcap: float = 0.0, left_window: int | None = None, interleaved: bool = False, precision: Literal["strict", "invariant", "fast"] | None = None, output: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType | None = None) -> Tensor:
    """appends a token's rotated key and its value to the caches, in place, and gives its attention: rope_append and attention in one

    Inputs:
        cache (float32, float16, bfloat16, uint8; updated in place): [Hkv, capacity, D] or [B, Hkv, capacity, D], updated in place; u8: rows packed in Q8_0
        rows (float32, float16, bfloat16): [tokens, Hkv, D] or [B, tokens, Hkv, D], f32 or the cache's type
        positions (int32): [tokens] or [B, tokens]: where each token goes, below the capacity, all different
        frequencies (float32): [rotary_dim / 2], radians for each position; the rest of a head is copied
        value_cache (float32, float16, bfloat16, uint8; updated in place): as cache, updated in place
        values (float32, float16, bfloat16): as rows, what goes into value_cache as it is
        queries (float32, float16, bfloat16): [1, Hq, D] of the type of rows

    Returns:
        y (float32, float16, bfloat16): [1, Hq, Dv], of type output

    Attributes:
        scale (float): Factor of the dot product; `None` for `1 / √D`.
        softcap (float): `s` becomes `c · tanh(s / c)`; zero for none.
        left_window (count): Attend at most this many keys before the token; `None` for all.
        interleaved (bool): Pairs are neighbours instead of half of `rotary_dim` apart.
        precision (word: strict, invariant, fast): How sums may be ordered: as `Attention` does. None is the executor's.
        output (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the output; that of `queries` if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def dequantize(x: Tensor, *, format: Literal["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "AFFINE4_BF16", "AFFINE8_F16", "AFFINE8_BF16"], width: int, dtype: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType = 'float32') -> Tensor:
    """packed rows of quantised weights as floats

    Inputs:
        x (uint8): [rows, packed bytes of width elements]

    Returns:
        y (float32, float16, bfloat16): [rows, width]

    Attributes:
        format (word: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, AFFINE4_BF16, AFFINE8_F16, AFFINE8_BF16): The rows' format.
        width (count): Elements of a row.
        dtype (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): The type of the output.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def div(a: Tensor, b: Tensor) -> Tensor:
    """`a / b`; integers towards zero, by zero zero, the least by -1 itself.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """`x` where positive, else `alpha * (exp(x) - 1)`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Attributes:
        alpha (float): Minus the limit far below zero.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def eq(a: Tensor, b: Tensor) -> Tensor:
    """`a = b`.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape that broadcasts with a

    Returns:
        y (bool): the shape a and b broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def erf(x: Tensor) -> Tensor:
    """The error function.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def exp(x: Tensor) -> Tensor:
    """`e` to the power `a`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def exp2(x: Tensor) -> Tensor:
    """2 to the power `a`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def expand(x: Tensor, *, shape: Sequence[int]) -> Tensor:
    """x broadcast to a shape

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): row-major

    Attributes:
        shape (counts): The shape to broadcast with: an extent of 1 keeps that of `x`.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def fill(*, shape: Sequence[int], dtype: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType = 'float32', value: float = 0.0, executor: Executor) -> Tensor:
    """a tensor of one value

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): of the given shape

    Attributes:
        shape (counts): The extents.
        dtype (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): The type.
        value (float): The value.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def floor(x: Tensor) -> Tensor:
    """Rounded down to a whole number.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c, rounded once, broadcast

    Inputs:
        a (float32, float16, bfloat16): any shape
        b (float32, float16, bfloat16): any shape that broadcasts with a and c
        c (float32, float16, bfloat16): any shape that broadcasts with a and b

    Returns:
        y (float32, float16, bfloat16): the shape all broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def fmod(a: Tensor, b: Tensor) -> Tensor:
    """`a - b * trunc(a / b)`; of integers by zero `a`; of floats `fma(-trunc(a / b), b, a)`.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """entries of x along an axis by index: the embedding lookup

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): [A…, n, B…]
        indices (int32, int64, uint32): [I…], in -n..n; negative ones count from the end

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): [A…, I…, B…]

    Attributes:
        axis (int): The axis; negative counts from the end.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """elements of x whose coordinate along an axis is the index at their place

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): […]
        indices (int32, int64, uint32): of x's rank, no larger than x but along the axis; negative ones count from the end

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): as indices

    Attributes:
        axis (int): The axis; negative counts from the end.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """slices of x by tuples of leading coordinates

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): [B…, d1…dk, S…]
        indices (int32, int64, uint32): [B…, I…, k]; negative ones count from the end

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): [B…, I…, S…]

    Attributes:
        batch_dims (count): Number of leading axes that `x` and `indices` share.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def ge(a: Tensor, b: Tensor) -> Tensor:
    """`a ≥ b`.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape that broadcasts with a

    Returns:
        y (bool): the shape a and b broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def gelu(x: Tensor) -> Tensor:
    """`a * Phi(a)`, the Gaussian error linear unit, `Phi` the normal distribution function.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def gelu_tanh(x: Tensor) -> Tensor:
    """The Gaussian error linear unit's approximation, `a / 2 * (1 + tanh(sqrt(2/pi) * (a + 0.044715 * a^3)))`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def gt(a: Tensor, b: Tensor) -> Tensor:
    """`a > b`.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape that broadcasts with a

    Returns:
        y (bool): the shape a and b broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def hard_sigmoid(x: Tensor, *, alpha: float = 0.2) -> Tensor:
    """`clamp(alpha * x + 1/2, 0, 1)`, rounded once.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Attributes:
        alpha (float): The slope; 1/6 is PyTorch's.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def hard_swish(x: Tensor) -> Tensor:
    """`a * clamp(a / 6 + 1/2, 0, 1)`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def kv_append(cache: Tensor, rows: Tensor, positions: Tensor) -> None:
    """writes new rows into a key or value cache at given positions, in place

    Inputs:
        cache (float32, float16, bfloat16, uint8; updated in place): [Hkv, capacity, D] or [B, Hkv, capacity, D], updated in place; u8: rows packed in Q8_0
        rows (float32, float16, bfloat16): [tokens, Hkv, D] or [B, tokens, Hkv, D], f32 or the cache's type
        positions (int32): [tokens] or [B, tokens]: where each token goes, below the capacity, all different

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-05, statistics: bool = False) -> Any:
    """(x - mean x) / sqrt(var x + epsilon) * weight + bias over the axes from axis on

    Inputs:
        x (float32, float16, bfloat16): […]
        weight (float32, float16, bfloat16; optional): the shape of x from axis on; 1 where absent
        bias (float32, float16, bfloat16; optional): as weight; 0 where absent

    Returns:
        y (float32, float16, bfloat16): as x
        mean (float32; optional): with statistics: the shape of x, 1 from axis on
        inv_std (float32; optional): with statistics: 1 / sqrt(var x + epsilon), as mean

    Attributes:
        axis (int): The first normalised axis; negative counts from the end.
        epsilon (float): Added to the variance.
        statistics (bool): Also give `μ` and `r`, f32, of the shape of `x` with extents of one for the normalised axes.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def layer_norm_gradient(x: Tensor, weight: Tensor | None = None, dy: Tensor = ..., addend: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-05, parameters: bool = False) -> Any:
    """the gradients of layer_norm by its rows and, if wanted, by its weight and bias

    Inputs:
        x (float32, float16, bfloat16): […]
        weight (float32, float16, bfloat16; optional): the shape of x from axis on; 1 where absent
        dy (float32, float16, bfloat16): the gradient of the norm, as x
        addend (float32, float16, bfloat16; optional): what is added to the gradient, as x

    Returns:
        dx (float32, float16, bfloat16): as x
        dweight (float32, float16, bfloat16; optional): if wanted: the shape of x from axis on
        dbias (float32, float16, bfloat16; optional): if wanted, of layer_norm: as dweight

    Attributes:
        axis (int): The first normalised axis; negative counts from the end.
        epsilon (float): Added to the mean of the squares, or to the variance.
        parameters (bool): Also give `dweight` and, of `layer_norm`, `dbias`.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def le(a: Tensor, b: Tensor) -> Tensor:
    """`a ≤ b`.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape that broadcasts with a

    Returns:
        y (bool): the shape a and b broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """`x` where positive, else `alpha * x`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Attributes:
        alpha (float): The slope below zero.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def left_shift(a: Tensor, b: Tensor) -> Tensor:
    """`a` shifted left by `b` modulo the width.

    Inputs:
        a (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def log(x: Tensor) -> Tensor:
    """The natural logarithm.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def log10(x: Tensor) -> Tensor:
    """The logarithm to base 10: `log2(a) * log10(2)`, both rounded.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def log1p(x: Tensor) -> Tensor:
    """`log(1 + a)`, also where `a` is small.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def log2(x: Tensor) -> Tensor:
    """The logarithm to base 2.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """logarithm of the softmax along an axis

    Inputs:
        x (float32, float16, bfloat16): […], any shape with at least one axis

    Returns:
        y (float32, float16, bfloat16): as x

    Attributes:
        axis (int): The axis; negative counts from the end.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def log_softmax_gradient(y: Tensor, dy: Tensor, *, axis: int = -1) -> Tensor:
    """the gradient of log_softmax by its input

    Inputs:
        y (float32, float16, bfloat16): […], what the softmax gave
        dy (float32, float16, bfloat16): its gradient, as y

    Returns:
        dx (float32, float16, bfloat16): as y

    Attributes:
        axis (int): The axis; negative counts from the end.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """a and b, broadcast

    Inputs:
        a (bool): any shape
        b (bool): any shape that broadcasts with a

    Returns:
        y (bool): the shape a and b broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def logical_not(x: Tensor) -> Tensor:
    """not x

    Inputs:
        x (bool): any shape

    Returns:
        y (bool): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """a or b, broadcast

    Inputs:
        a (bool): any shape
        b (bool): any shape that broadcasts with a

    Returns:
        y (bool): the shape a and b broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def logical_xor(a: Tensor, b: Tensor) -> Tensor:
    """a or b but not both, broadcast

    Inputs:
        a (bool): any shape
        b (bool): any shape that broadcasts with a

    Returns:
        y (bool): the shape a and b broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def lora_linear(x: Tensor, weight: Tensor, a: Tensor, b: Tensor, bias: Tensor | None = None, *, scale: float = 1.0, precision: Literal["strict", "invariant", "fast"] | None = None) -> Tensor:
    """linear layer with a low-rank adapter: x W^T + scale (x A^T) B^T + bias

    Inputs:
        x (float32, float16, bfloat16): [..., k]
        weight (float32, float16, bfloat16): [n, k]
        a (float32, float16, bfloat16): [r, k]
        b (float32, float16, bfloat16): [n, r]
        bias (float32, float16, bfloat16; optional): [n]; none where absent

    Returns:
        y (float32, float16, bfloat16): [..., n], of the type of x

    Attributes:
        scale (float): Scales the adapter.
        precision (word: strict, invariant, fast): How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order). None is the executor's.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def lora_rows(x: Tensor, adapters: Tensor, base0: Tensor, a0: Tensor, b0: Tensor, scales0: Tensor, ranks0: Tensor, base1: Tensor | None = None, a1: Tensor | None = None, b1: Tensor | None = None, scales1: Tensor | None = None, ranks1: Tensor | None = None, base2: Tensor | None = None, a2: Tensor | None = None, b2: Tensor | None = None, scales2: Tensor | None = None, ranks2: Tensor | None = None) -> Any:
    """what each row's own low-rank adapter adds to linear layers of one input: base + scale (x A^T) B^T

    Inputs:
        x (float32): [rows, k]
        adapters (int32): [rows]: the adapter of each row; none where there is no adapter of this number, such as -1
        base0 (float32): [rows, n0]: the layer without adapters
        a0 (float32): [adapters, r0, k]
        b0 (float32): [adapters, r0, n0]
        scales0 (float32): [adapters]: the factor of what one adds
        ranks0 (int32): [adapters]: how many of the r0 rows one has; zero, and it adds nothing
        base1 (float32; optional): [rows, n1]: a second layer, whose other operands are beside it
        a1 (float32; optional): [adapters, r1, k]
        b1 (float32; optional): [adapters, r1, n1]
        scales1 (float32; optional): [adapters]
        ranks1 (int32; optional): [adapters]
        base2 (float32; optional): [rows, n2]: a third layer, after a second
        a2 (float32; optional): [adapters, r2, k]
        b2 (float32; optional): [adapters, r2, n2]
        scales2 (float32; optional): [adapters]
        ranks2 (int32; optional): [adapters]

    Returns:
        y0 (float32): as base0
        y1 (float32; optional): as base1
        y2 (float32; optional): as base2

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def lt(a: Tensor, b: Tensor) -> Tensor:
    """`a < b`.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape that broadcasts with a

    Returns:
        y (bool): the shape a and b broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def matmul(a: Tensor, b: Tensor, bias: Tensor | None = None, *, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0, precision: Literal["strict", "invariant", "fast"] | None = None, output: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType | None = None) -> Tensor:
    """alpha a b + bias, batched, with broadcasting of leading axes

    Inputs:
        a (float32, float16, bfloat16): [..., m, k] (or [k])
        b (float32, float16, bfloat16): [..., k, n] (or [k]); its type may differ from that of a
        bias (float32, float16, bfloat16; optional): [n]; none where absent

    Returns:
        y (float32, float16, bfloat16): [..., m, n]

    Attributes:
        transpose_a (bool): `a` is `[…, k, m]`.
        transpose_b (bool): `b` is `[…, n, k]`: the weight of a linear layer.
        alpha (float): Scales the product, not the bias.
        precision (word: strict, invariant, fast): How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order). None is the executor's.
        output (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the output; that of `a` if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def matmul_add(a: Tensor, b: Tensor, addend: Tensor, *, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0, precision: Literal["strict", "invariant", "fast"] | None = None, output: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType | None = None) -> Tensor:
    """addend + alpha a b, batched, with broadcasting of leading axes

    Inputs:
        a (float32, float16, bfloat16): [..., m, k] (or [k])
        b (float32, float16, bfloat16): [..., k, n] (or [k]); its type may differ from that of a
        addend (float32, float16, bfloat16): [..., m, n], of the product's type

    Returns:
        y (float32, float16, bfloat16): as addend

    Attributes:
        transpose_a (bool): As `MatMul::transpose_a`.
        transpose_b (bool): As `MatMul::transpose_b`.
        alpha (float): Scales the product.
        precision (word: strict, invariant, fast): As `MatMul::precision`. None is the executor's.
        output (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): As `MatMul::output`: the addend has this type.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def matvec(matrix: Tensor, vector: Tensor, bias: Tensor | None = None) -> Tensor:
    """matrix times vector plus bias, strict, with broadcasting of leading axes

    Inputs:
        matrix (float32, float16, bfloat16): [..., n, k]
        vector (float32, float16, bfloat16): [..., k]; its type may differ from that of the matrix
        bias (float32, float16, bfloat16; optional): [n]; none where absent

    Returns:
        y (float32, float16, bfloat16): [..., n], of the vector's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def max(a: Tensor, b: Tensor) -> Tensor:
    """The larger; NaN if either is.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def min(a: Tensor, b: Tensor) -> Tensor:
    """The smaller; NaN if either is.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def mish(x: Tensor) -> Tensor:
    """`a * tanh(log(1 + exp(a)))`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def mul(a: Tensor, b: Tensor) -> Tensor:
    """`a * b`; integers wrap.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def ne(a: Tensor, b: Tensor) -> Tensor:
    """`a ≠ b`.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape that broadcasts with a

    Returns:
        y (bool): the shape a and b broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def neg(x: Tensor) -> Tensor:
    """`-a`; integers wrap.

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def pad(x: Tensor, *, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Tensor:
    """x with a value around it, or less of x

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): row-major

    Attributes:
        before (ints): Elements added before, for each axis.
        after (ints): Elements added after, for each axis.
        value (float): Their value.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def paged_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor, positions: Tensor, *, scale: float | None = None, softcap: float = 0.0, left_window: int | None = None, page: int = 32, precision: Literal["strict", "invariant", "fast"] | None = None, output: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType | None = None) -> Tensor:
    """causal attention of several sequences over keys and values in pages, which a table names for each of them

    Inputs:
        q (float32, float16, bfloat16): [B, Hq, Tq, D]
        k (float32, float16, bfloat16, uint8): [Hkv, slots, D], of q's type or any beside an f32 q; u8: rows packed in Q8_0
        v (float32, float16, bfloat16, uint8): [Hkv, slots, Dv], of k's type
        table (int32): [B, pages]: which page of the cache each page of a sequence is
        positions (int32): [Tq] or [B, Tq]: where each query stands in its sequence; a negative one attends nothing

    Returns:
        y (float32, float16, bfloat16): [B, Tq, Hq, Dv], of type output

    Attributes:
        scale (float): Factor of the dot product; `None` for `1 / √D`.
        softcap (float): `s` becomes `c · tanh(s / c)`; zero for none.
        left_window (count): Attend at most this many keys before the query's position; `None` for all.
        page (count): Tokens of a page.
        precision (word: strict, invariant, fast): How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order). None is the executor's.
        output (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the output; that of `q` if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def paged_decode_attention(cache: Tensor, rows: Tensor, positions: Tensor, frequencies: Tensor, value_cache: Tensor, values: Tensor, queries: Tensor, slots: Tensor, table: Tensor, *, scale: float | None = None, softcap: float = 0.0, left_window: int | None = None, page: int = 32, interleaved: bool = False, precision: Literal["strict", "invariant", "fast"] | None = None, output: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType | None = None) -> Tensor:
    """appends a rotated key and a value of each sequence to a cache in pages, in place, and gives the tokens' attention: rope_append and paged_attention in one

    Inputs:
        cache (float32, float16, bfloat16, uint8; updated in place): [Hkv, slots, D], updated in place
        rows (float32, float16, bfloat16): [B, Hkv, D]: the new keys
        positions (int32): [B]: where each token stands in its sequence; a negative one attends nothing
        frequencies (float32): [rotary_dim / 2], radians for each position; the rest of a head is copied
        value_cache (float32, float16, bfloat16, uint8; updated in place): as cache, updated in place
        values (float32, float16, bfloat16): as rows, what goes into value_cache as it is
        queries (float32, float16, bfloat16): [B, Hq, D] of the type of rows
        slots (int32): [B]: where each token goes
        table (int32): [B, pages]: which page of the cache each page of a sequence is

    Returns:
        y (float32, float16, bfloat16): [B, Hq, Dv], of type output

    Attributes:
        scale (float): Factor of the dot product; `None` for `1 / √D`.
        softcap (float): `s` becomes `c · tanh(s / c)`; zero for none.
        left_window (count): Attend at most this many keys before the token; `None` for all.
        page (count): Tokens of a page.
        interleaved (bool): Pairs are neighbours instead of half of `rotary_dim` apart.
        precision (word: strict, invariant, fast): How sums may be ordered: as `PagedAttention` does. None is the executor's.
        output (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the output; that of `queries` if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def pow(a: Tensor, b: Tensor) -> Tensor:
    """`a` to the power `b`.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def projection(x: Tensor, norm: Tensor | None = None, w0: Tensor = ..., w1: Tensor | None = None, w2: Tensor | None = None, b0: Tensor | None = None, b1: Tensor | None = None, b2: Tensor | None = None, residual: Tensor | None = None, *, epsilon: float | None = None, gated: bool = False, precision: Literal["strict", "invariant", "fast"] | None = None, output: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType | None = None) -> Any:
    """linear layers of one input: rms_norm before, a residual or a gate after, in one launch

    Inputs:
        x (float32, float16, bfloat16): […, k]
        norm (float32, float16, bfloat16; optional): [k], the norm's weight; 1 where absent
        w0 (float32, float16, bfloat16): [n0, k]
        w1 (float32, float16, bfloat16; optional): [n1, k], of the type of w0
        w2 (float32, float16, bfloat16; optional): [n2, k], of the type of w0
        b0 (float32, float16, bfloat16; optional): [n0]; none where absent
        b1 (float32, float16, bfloat16; optional): [n1]; none where absent; biases have one type
        b2 (float32, float16, bfloat16; optional): [n2]; none where absent
        residual (float32; optional): […, n0], added to the product of a single weight

    Returns:
        y0 (float32, float16, bfloat16): […, n0], of type output
        y1 (float32, float16, bfloat16; optional): […, n1], for a second weight that is not the gated one
        y2 (float32, float16, bfloat16; optional): […, n2], for a third weight

    Attributes:
        epsilon (float): Normalise the rows first, with this added to the mean of the squares.
        gated (bool): Give `silu(y0) · y1`.
        precision (word: strict, invariant, fast): How sums may be ordered: strict (the same bits on every device), invariant (the same bits of a row on one device) or fast (any order). None is the executor's.
        output (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the outputs; f32 if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def quantized_linear(x: Tensor, w0: Tensor, w1: Tensor | None = None, w2: Tensor | None = None, b0: Tensor | None = None, b1: Tensor | None = None, b2: Tensor | None = None, norm: Tensor | None = None, residual: Tensor | None = None, *, format: Literal["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "AFFINE4_BF16", "AFFINE8_F16", "AFFINE8_BF16"], epsilon: float | None = None, gated: bool = False, precision: Literal["strict", "invariant", "fast"] | None = None, output: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType | None = None) -> Any:
    """linear layers whose weights are quantised in blocks: rms_norm before, a residual or a gate after, in one launch

    Inputs:
        x (float32, float16, bfloat16): […, k]
        w0 (uint8): [n0, packed bytes of k elements]
        w1 (uint8; optional): [n1, packed bytes of k elements]
        w2 (uint8; optional): [n2, packed bytes of k elements]
        b0 (float32, float16, bfloat16; optional): [n0]; none where absent
        b1 (float32, float16, bfloat16; optional): [n1]; none where absent; biases have one type
        b2 (float32, float16, bfloat16; optional): [n2]; none where absent
        norm (float32, float16, bfloat16; optional): [k], the norm's weight; 1 where absent
        residual (float32; optional): […, n0], added to the product of a single weight

    Returns:
        y0 (float32, float16, bfloat16): […, n0], of type output
        y1 (float32, float16, bfloat16; optional): […, n1], for a second weight that is not the gated one
        y2 (float32, float16, bfloat16; optional): […, n2], for a third weight

    Attributes:
        format (word: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4, AFFINE4_BF16, AFFINE8_F16, AFFINE8_BF16): The weights' format.
        epsilon (float): Normalise the rows first, with this added to the mean of the squares.
        gated (bool): Give `silu(y0) · y1`.
        precision (word: strict, invariant, fast): Fast: of many rows on a GPU, the weights are decoded to bf16 and multiplied as such; on a CPU, x may have 8 bits. None is the executor's.
        output (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the outputs; that of x if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reciprocal(x: Tensor) -> Tensor:
    """`1 / a`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reduce_l2(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = True) -> Tensor:
    """square root of the sum of the squares along axes

    Inputs:
        x (float32, float16, bfloat16): […]

    Returns:
        y (float32, float16, bfloat16): the shape of x without the reduced axes, or 1 there

    Attributes:
        axes (ints): The reduced axes, negative ones counting from the end; none for all of them.
        keepdims (bool): Keep the reduced axes, with extents of one.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reduce_log_sum_exp(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = True) -> Tensor:
    """logarithm of the sum of the exponentials along axes

    Inputs:
        x (float32, float16, bfloat16): […]

    Returns:
        y (float32, float16, bfloat16): the shape of x without the reduced axes, or 1 there

    Attributes:
        axes (ints): The reduced axes, negative ones counting from the end; none for all of them.
        keepdims (bool): Keep the reduced axes, with extents of one.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reduce_max(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = True) -> Tensor:
    """largest element along axes

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): […]

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): the shape of x without the reduced axes, or 1 there

    Attributes:
        axes (ints): The reduced axes, negative ones counting from the end; none for all of them.
        keepdims (bool): Keep the reduced axes, with extents of one.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reduce_mean(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = True) -> Tensor:
    """mean along axes

    Inputs:
        x (float32, float16, bfloat16): […]

    Returns:
        y (float32, float16, bfloat16): the shape of x without the reduced axes, or 1 there

    Attributes:
        axes (ints): The reduced axes, negative ones counting from the end; none for all of them.
        keepdims (bool): Keep the reduced axes, with extents of one.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reduce_min(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = True) -> Tensor:
    """smallest element along axes

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): […]

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): the shape of x without the reduced axes, or 1 there

    Attributes:
        axes (ints): The reduced axes, negative ones counting from the end; none for all of them.
        keepdims (bool): Keep the reduced axes, with extents of one.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reduce_prod(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = True) -> Tensor:
    """product along axes

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): […]

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape of x without the reduced axes, or 1 there

    Attributes:
        axes (ints): The reduced axes, negative ones counting from the end; none for all of them.
        keepdims (bool): Keep the reduced axes, with extents of one.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reduce_sum(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = True) -> Tensor:
    """sum along axes

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): […]

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape of x without the reduced axes, or 1 there

    Attributes:
        axes (ints): The reduced axes, negative ones counting from the end; none for all of them.
        keepdims (bool): Keep the reduced axes, with extents of one.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reduce_sum_square(x: Tensor, *, axes: Sequence[int] = (), keepdims: bool = True) -> Tensor:
    """sum of the squares along axes

    Inputs:
        x (float32, float16, bfloat16): […]

    Returns:
        y (float32, float16, bfloat16): the shape of x without the reduced axes, or 1 there

    Attributes:
        axes (ints): The reduced axes, negative ones counting from the end; none for all of them.
        keepdims (bool): Keep the reduced axes, with extents of one.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def relu(x: Tensor) -> Tensor:
    """`a` where positive, else 0.

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def reshape(x: Tensor, *, shape: Sequence[int], allow_zero: bool = False) -> Tensor:
    """the elements of x in row-major order under another shape

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): row-major

    Attributes:
        shape (ints): The extents; one may be -1: what is left; 0 keeps the input's extent at that place.
        allow_zero (bool): 0 is an extent of zero.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def right_shift(a: Tensor, b: Tensor) -> Tensor:
    """`a` shifted right by `b` modulo the width, copying the sign of signed types.

    Inputs:
        a (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def rms_norm(x: Tensor, weight: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-05, output: Literal["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"] | DType | None = None) -> Tensor:
    """x / sqrt(mean x^2 + epsilon) * weight over the axes from axis on

    Inputs:
        x (float32, float16, bfloat16): […]
        weight (float32, float16, bfloat16; optional): the shape of x from axis on; 1 where absent

    Returns:
        y (float32, float16, bfloat16): as x, of type output

    Attributes:
        axis (int): The first normalised axis; negative counts from the end.
        epsilon (float): Added to the mean of the squares.
        output (word: float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): Type of the output; that of `x` if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def rms_norm_gradient(x: Tensor, weight: Tensor | None = None, dy: Tensor = ..., addend: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-05, parameters: bool = False) -> Any:
    """the gradients of rms_norm by its rows and, if wanted, by its weight

    Inputs:
        x (float32, float16, bfloat16): […]
        weight (float32, float16, bfloat16; optional): the shape of x from axis on; 1 where absent
        dy (float32, float16, bfloat16): the gradient of the norm, as x
        addend (float32, float16, bfloat16; optional): what is added to the gradient, as x

    Returns:
        dx (float32, float16, bfloat16): as x
        dweight (float32, float16, bfloat16; optional): if wanted: the shape of x from axis on
        dbias (float32, float16, bfloat16; optional): if wanted, of layer_norm: as dweight

    Attributes:
        axis (int): The first normalised axis; negative counts from the end.
        epsilon (float): Added to the mean of the squares, or to the variance.
        parameters (bool): Also give `dweight` and, of `layer_norm`, `dbias`.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def rope(x: Tensor, positions: Tensor, frequencies: Tensor, *, interleaved: bool = False) -> Tensor:
    """rotary position embedding by angles position * frequency

    Inputs:
        x (float32, float16, bfloat16): [tokens, heads, head_dim] or [batch, tokens, heads, head_dim]
        positions (int32, int64, uint32): [tokens] or [batch, tokens]
        frequencies (float32): [rotary_dim / 2], radians for each position; the rest of a head is copied

    Returns:
        y (float32, float16, bfloat16): as x

    Attributes:
        interleaved (bool): Pairs are neighbours instead of half a head apart.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def rope_append(cache: Tensor, rows: Tensor, positions: Tensor, frequencies: Tensor, value_cache: Tensor | None = None, values: Tensor | None = None, queries: Tensor | None = None, slots: Tensor | None = None, *, interleaved: bool = False) -> None:
    """rotates new keys by their positions and writes them into a cache, in place, beside values and queries: rope and kv_append in one

    Inputs:
        cache (float32, float16, bfloat16, uint8; updated in place): [Hkv, capacity, D] or [B, Hkv, capacity, D], updated in place; u8: rows packed in Q8_0
        rows (float32, float16, bfloat16): [tokens, Hkv, D] or [B, tokens, Hkv, D], f32 or the cache's type
        positions (int32): [tokens] or [B, tokens]: where each token goes, below the capacity, all different
        frequencies (float32): [rotary_dim / 2], radians for each position; the rest of a head is copied
        value_cache (float32, float16, bfloat16, uint8; optional; updated in place): as cache, updated in place
        values (float32, float16, bfloat16; optional): as rows, what goes into value_cache as it is
        queries (float32, float16, bfloat16; optional; updated in place): [tokens, Hq, D] or [B, tokens, Hq, D] of the type of rows, rotated in place
        slots (int32; optional): as positions: where each token goes, if not to its position

    Attributes:
        interleaved (bool): Pairs are neighbours instead of half of `rotary_dim` apart.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def rotary_embedding(x: Tensor, cos_cache: Tensor, sin_cache: Tensor, position_ids: Tensor | None = None, *, interleaved: bool = False, rotary_embedding_dim: int = 0, num_heads: int = 0) -> Tensor:
    """rotary position embedding by caches of cosines and sines

    Inputs:
        x (float32, float16, bfloat16): [batch, heads, tokens, head_dim], or [batch, tokens, heads * head_dim] with num_heads
        cos_cache (float32, float16, bfloat16): [positions, rotary_dim / 2]; without position_ids [batch, tokens, rotary_dim / 2]
        sin_cache (float32, float16, bfloat16): as cos_cache
        position_ids (int32, int64, uint32; optional): [batch, tokens] or [tokens]

    Returns:
        y (float32, float16, bfloat16): as x

    Attributes:
        interleaved (bool): Pairs are neighbours instead of half a head apart.
        rotary_embedding_dim (count): Rotating elements of a head; zero for all of them.
        num_heads (count): Heads of a three-dimensional `x`; zero otherwise.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def round(x: Tensor) -> Tensor:
    """Rounded to the nearest whole number, ties to even.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def rsqrt(x: Tensor) -> Tensor:
    """`1 / sqrt(a)`, both operations rounded.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def sample(state: Tensor, logits: Tensor, factors: Tensor, numbers: Tensor) -> None:
    """a token drawn from logits and the position after, in place: the end of a decoding step

    Inputs:
        state (int32; updated in place): [2] or [rows, 2], a token and its position, updated in place to the token drawn and the position after
        logits (float32, float16, bfloat16): […, vocabulary], one row, or [rows, vocabulary]
        factors (float32): [3] or [rows, 3]: temperature, top-p, min-p
        numbers (uint32): [3] or [rows, 3]: top-k, the seed's lower and upper word

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def sample_argmax(state: Tensor, logits: Tensor) -> None:
    """the most likely token and the position after, in place: the end of a decoding step

    Inputs:
        state (int32; updated in place): [2], a token and its position, updated in place to the token of the greatest logit and the position after
        logits (float32, float16, bfloat16): […, vocabulary], one row

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: Literal["none", "add", "mul", "min", "max"] = 'none') -> Tensor:
    """x with single elements along an axis combined with updates, by an index for each

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): […]
        indices (int32, int64, uint32): of x's rank, no larger than x but along the axis; negative ones count from the end
        updates (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): as indices, of x's type

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): as x

    Attributes:
        axis (int): The axis; negative counts from the end.
        reduction (word: none, add, mul, min, max): What becomes of an element and its updates, in their order; with none the last update replaces it.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: Literal["none", "add", "mul", "min", "max"] = 'none') -> Tensor:
    """x with slices combined with updates, by tuples of leading coordinates

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): [d1…dk, S…]
        indices (int32, int64, uint32): [I…, k]; negative ones count from the end
        updates (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): [I…, S…], of x's type

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): as x

    Attributes:
        reduction (word: none, add, mul, min, max): What becomes of an element and its updates, in their order; with none the last update replaces it.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def selu(x: Tensor) -> Tensor:
    """`1.0507010 * a` where positive, else `1.7580993 * (exp(a) - 1)`, the self-normalising unit of Klambauer et al., 2017.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def sigmoid(x: Tensor) -> Tensor:
    """`1 / (1 + exp(-a))`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1 by the sign of `a`; of a NaN that NaN, of a zero that zero.

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def silu(x: Tensor) -> Tensor:
    """`a * sigmoid(a)`, also called swish.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def sin(x: Tensor) -> Tensor:
    """The sine of `a` radians.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def slice(x: Tensor, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None, steps: Sequence[int] | None = None) -> Tensor:
    """a range of x along each of some axes, as in Python: bounds are clamped, negative ones count from the end

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): row-major

    Attributes:
        starts (ints): First index along each axis sliced.
        ends (ints): Index before which each ends.
        axes (ints): The axes sliced, negative from the end; the first ones if absent.
        steps (ints): Steps, negative to walk backwards; 1 if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """exp(x - max x) / sum exp(x - max x) along an axis

    Inputs:
        x (float32, float16, bfloat16): […], any shape with at least one axis

    Returns:
        y (float32, float16, bfloat16): as x

    Attributes:
        axis (int): The axis; negative counts from the end.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def softmax_gradient(y: Tensor, dy: Tensor, *, axis: int = -1) -> Tensor:
    """the gradient of softmax by its input

    Inputs:
        y (float32, float16, bfloat16): […], what the softmax gave
        dy (float32, float16, bfloat16): its gradient, as y

    Returns:
        dx (float32, float16, bfloat16): as y

    Attributes:
        axis (int): The axis; negative counts from the end.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def softplus(x: Tensor) -> Tensor:
    """`log(1 + exp(a))`.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def softsign(x: Tensor) -> Tensor:
    """`a / (1 + |a|)`, each operation rounded.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def split(x: Tensor, *, axis: int = 0, sizes: Sequence[int] | None = None, parts: int | None = None) -> Any:
    """x cut into parts along an axis

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape

    Returns:
        y... (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): the parts

    Attributes:
        axis (int): The axis; negative counts from the end.
        sizes (counts): Extent of each part along it.
        parts (count): Number of parts where `sizes` is absent: of equal extent, rounded up; the last one gets what is left.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def sqrt(x: Tensor) -> Tensor:
    """The square root, correctly rounded.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def square(x: Tensor) -> Tensor:
    """`a * a`.

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def sub(a: Tensor, b: Tensor) -> Tensor:
    """`a - b`; integers wrap.

    Inputs:
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): any shape that broadcasts with a

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): the shape a and b broadcast to, of a's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def swiglu(a: Tensor, b: Tensor | None = None, *, alpha: float = 1.0) -> Tensor:
    """silu(a) * b, or of the two halves of a's last axis

    Inputs:
        a (float32, float16, bfloat16): […]; without b […, 2n], its halves along the last axis standing for a and b
        b (float32, float16, bfloat16; optional): as a

    Returns:
        y (float32, float16, bfloat16): as a; without b […, n]

    Attributes:
        alpha (float): Scales the argument of the sigmoid.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def swiglu_gradient(a: Tensor, b: Tensor | None = None, dy: Tensor = ..., *, alpha: float = 1.0) -> Any:
    """the gradients of swiglu by its inputs

    Inputs:
        a (float32, float16, bfloat16): as of swiglu
        b (float32, float16, bfloat16; optional): as of swiglu
        dy (float32, float16, bfloat16): the gradient of what swiglu gave, in its shape

    Returns:
        da (float32, float16, bfloat16): as a
        db (float32, float16, bfloat16; optional): with b: as b

    Attributes:
        alpha (float): Scales the argument of the sigmoid.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def tan(x: Tensor) -> Tensor:
    """The tangent of `a` radians.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def top_k(x: Tensor, *, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, ...]:
    """the k largest or smallest elements along an axis and their indices

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): […], any shape with at least one axis

    Returns:
        values (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64): as x, with k for the axis
        indices (int64): as values

    Attributes:
        k (count): How many.
        axis (int): The axis; negative counts from the end.
        largest (bool): The largest; else the smallest.
        sorted (bool): In order; else by index.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    """x with its axes in another order

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): row-major

    Attributes:
        perm (ints): For each axis of the output the axis of the input, negative from the end; all reversed if absent.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def trilu(x: Tensor, *, upper: bool = True, k: int = 0) -> Tensor:
    """the upper or lower triangle of matrices, zero elsewhere

    Inputs:
        x (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): […, m, n]

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): as x

    Attributes:
        upper (bool): The upper triangle, columns − rows ≥ k; else the lower one, columns − rows ≤ k.
        k (int): The diagonal that bounds it: above zero to the right of the main one.

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def trunc(x: Tensor) -> Tensor:
    """Rounded to a whole number, towards zero.

    Inputs:
        x (float32, float16, bfloat16): any shape

    Returns:
        y (float32, float16, bfloat16): as x

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def weighted_sum(p: Tensor, v: Tensor) -> Tensor:
    """sums of values weighted by attention's probabilities: p v, with grouped heads

    Inputs:
        p (float32, float16, bfloat16): [B, Hq, Tq, Tk], weights of each key
        v (float32, float16, bfloat16): [B, Hkv, Tk, Dv], of p's type or any beside an f32 p

    Returns:
        y (float32, float16, bfloat16): [B, Hq, Tq, Dv], of p's type

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """

def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a where the condition holds, else b, broadcast

    Inputs:
        condition (bool): any shape
        a (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape that broadcasts with the others
        b (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): any shape that broadcasts with the others

    Returns:
        y (float32, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool): the shape all broadcast to

    Raises ValueError for shapes, types or values that do not fit, and TypeError for objects that are no tensors.
    """
