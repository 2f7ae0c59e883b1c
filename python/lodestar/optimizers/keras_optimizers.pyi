"""The arguments and attributes of the optimizers, which are Keras's and `nonfinite`.

tests/typing/typing_test.py compares them with `__signature__` of each class.
"""

from typing import TypedDict, Unpack

from lodestar._typing import LearningRate
from lodestar.optimizers.table_optimizer import Nonfinite, TableOptimizer

class _Options(TypedDict, total=False):
    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    name: str | None
    nonfinite: Nonfinite

class Adadelta(TableOptimizer):
    rho: float
    epsilon: float
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        **options: Unpack[_Options],
    ): ...

class _Adagrad(TableOptimizer):
    initial_accumulator_value: float
    epsilon: float
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        **options: Unpack[_Options],
    ): ...

class Adagrad(_Adagrad): ...
class RowWiseAdagrad(_Adagrad): ...

class Adam(TableOptimizer):
    beta_1: float
    beta_2: float
    epsilon: float
    amsgrad: bool
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        weight_decay: float | None = None,
        **options: Unpack[_Options],
    ): ...

class AdamW(TableOptimizer):
    beta_1: float
    beta_2: float
    epsilon: float
    amsgrad: bool
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        weight_decay: float | None = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **options: Unpack[_Options],
    ): ...

class _Adamax(TableOptimizer):
    beta_1: float
    beta_2: float
    epsilon: float
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        **options: Unpack[_Options],
    ): ...

class Adamax(_Adamax): ...
class Nadam(_Adamax): ...

class Ftrl(TableOptimizer):
    learning_rate_power: float
    initial_accumulator_value: float
    l1_regularization_strength: float
    l2_regularization_strength: float
    l2_shrinkage_regularization_strength: float
    beta: float
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        weight_decay: float | None = None,
        **options: Unpack[_Options],
    ): ...

class Lion(TableOptimizer):
    beta_1: float
    beta_2: float
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        weight_decay: float | None = None,
        **options: Unpack[_Options],
    ): ...

class RMSprop(TableOptimizer):
    rho: float
    momentum: float
    epsilon: float
    centered: bool
    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        weight_decay: float | None = None,
        **options: Unpack[_Options],
    ): ...

class SGD(TableOptimizer):
    momentum: float
    nesterov: bool
    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float | None = None,
        **options: Unpack[_Options],
    ): ...
