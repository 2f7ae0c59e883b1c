"""Embedding variables: tables that add a row for each new id."""

from lodestar.embedding.embedding_variable import (
    EmbeddingVariable as EmbeddingVariable,
)
from lodestar.embedding.policies import (
    CountingBloom as CountingBloom,
)
from lodestar.embedding.policies import (
    MaxAge as MaxAge,
)
from lodestar.embedding.policies import (
    MaxRows as MaxRows,
)
from lodestar.embedding.policies import (
    MinCount as MinCount,
)
from lodestar.embedding.policies import (
    MinFrequency as MinFrequency,
)
from lodestar.embedding.policies import (
    MinNorm as MinNorm,
)
from lodestar.embedding.policies import (
    SharedRows as SharedRows,
)
from lodestar.embedding.rows import EmbeddingRows as EmbeddingRows
from lodestar.embedding.rows import InspectedIds as InspectedIds
