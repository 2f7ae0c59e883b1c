"""The embedding variable: rows that appear when an id is first seen."""

from lodestar.embedding.embedding_variable import (
    EmbeddingVariable as EmbeddingVariable,
)
from lodestar.embedding.rows import EmbeddingRows as EmbeddingRows
